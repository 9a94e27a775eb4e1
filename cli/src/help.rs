//! Texts of the help that do not belong to one flag: examples, exit codes.
//!
//! Guarantee: each example parses; a test runs them all through clap.

/// Examples of `justapi`.
pub(crate) const JUSTAPI: &str = "justapi new my-api
justapi dev
justapi serve
justapi serve --addr 0.0.0.0:8080 --access-log text
justapi config show --origin";

/// Examples of `justapi new`.
pub(crate) const NEW: &str = "justapi new my-api
justapi new my-api --yes
justapi new my-api --template api --set db=postgres
justapi new . --template api --dry-run
justapi new my-api --template gh:ada/templates/service --ref v2
justapi new --list";

/// Examples of `justapi serve`.
pub(crate) const SERVE: &str = "justapi serve
justapi serve app:app --workers 4
justapi serve --addr 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
justapi serve --uds /run/justapi.sock --trusted-proxy unix --rate-limit 100/s
justapi serve --model smollm2:135m --api-key-file keys.txt
justapi serve --check --config production.toml";

/// Examples of `justapi dev`.
pub(crate) const DEV: &str = "justapi dev
justapi dev app:app --port 9000 --reload-ignore 'data/**'";

/// Examples of `justapi bench`.
pub(crate) const BENCH: &str = "justapi bench http://127.0.0.1:8000/hello
justapi bench http://127.0.0.1:8000/echo -c 64 -z 30s --body @order.json
justapi bench http://127.0.0.1:8000/hello --rate 1000 --fail-if 'p99>20ms' --fail-if 'errors>0'
justapi bench main.py --path /items/5 -z 5s
justapi bench --matrix core
justapi bench llm http://127.0.0.1:8080
justapi bench verify";

/// Examples of `justapi bench llm`.
pub(crate) const BENCH_LLM: &str = "justapi bench llm http://127.0.0.1:8080
justapi bench llm http://127.0.0.1:8080 --scenario concurrency -c 1,4,16 --out report.json
justapi bench llm http://127.0.0.1:8080 --rate 2 -n 100 --slo-ttft 500ms --slo-tpot 50ms";

/// Examples of `justapi profile`.
pub(crate) const PROFILE: &str = "justapi profile main.py
justapi profile app:app --path /items/5 --path /search?q=pen --duration 5 --connections 50
justapi profile http://127.0.0.1:8000 --path /echo --body @order.json --html profile.html
justapi profile https://127.0.0.1:8443/hello -k --rate 1000 --json
justapi profile app:app -- --python venv/bin/python --access-log text";

/// Examples of `justapi infer`.
pub(crate) const INFER: &str = "justapi infer --model smollm2:135m 'Why is the sky blue?'
justapi infer chat --model smollm2:135m
justapi infer inspect --model model.gguf --json
justapi infer bench --model model.gguf --threads 4";

/// Examples of `justapi infer run`.
pub(crate) const INFER_RUN: &str =
    "justapi infer run --model smollm2:135m 'Name three rivers.' --seed 1
justapi infer run --model model.gguf --temperature 0 --max-tokens 64 --json -
justapi infer run --model gemma3:270m --raw 'The three largest rivers are'";

/// Examples of `justapi infer chat`.
pub(crate) const INFER_CHAT: &str = "justapi infer chat --model smollm2:135m
justapi infer chat --model org/name:Q4_K_M --load chat.json --ctx 4096";

/// Examples of `justapi infer inspect`.
pub(crate) const INFER_INSPECT: &str = "justapi infer inspect --model model.gguf
justapi infer inspect --model smollm2:135m --tensors --json";

/// Examples of `justapi infer bench`.
pub(crate) const INFER_BENCH: &str = "justapi infer bench --model smollm2:135m
justapi infer bench --model model.gguf --prompt-tokens 128,1024 --threads 8 --json";

/// Examples of `justapi infer embed`.
pub(crate) const INFER_EMBED: &str = "justapi infer embed --model model.gguf first second --json
justapi infer embed --model model.gguf";

/// Examples of `justapi infer perplexity`.
pub(crate) const INFER_PERPLEXITY: &str = "justapi infer perplexity --model model.gguf book.txt
justapi infer perplexity --model model.gguf --window 1024 --json -";

/// Examples of `justapi routes`.
pub(crate) const ROUTES: &str = "justapi routes
justapi routes main.py --method POST --path '/items/*'
justapi routes app:app --json";

/// Examples of `justapi openapi`.
pub(crate) const OPENAPI: &str = "justapi openapi
justapi openapi app:app --output openapi.json
justapi openapi app:app --check openapi.json";

/// Examples of `justapi check`.
pub(crate) const CHECK: &str = "justapi check
justapi check app:app --config production.toml --strict";

/// Examples of `justapi doctor`.
pub(crate) const DOCTOR: &str = "justapi doctor
justapi doctor app:app --json
justapi doctor --fix";

/// Examples of `justapi self`.
pub(crate) const SELF: &str = "justapi self update 0.2.0 --dry-run
justapi self uninstall";

/// Examples of `justapi config`.
pub(crate) const CONFIG: &str = "justapi config show --origin
justapi config check --config production.toml";

/// Examples of `justapi explain`.
pub(crate) const EXPLAIN: &str = "justapi explain JA501";

/// Examples of `justapi completions`.
pub(crate) const COMPLETIONS: &str = "justapi completions bash
justapi completions fish";

/// Examples of `justapi man`.
pub(crate) const MAN: &str = "justapi man
justapi man --out man1";

/// Examples of `justapi version`.
pub(crate) const VERSION: &str = "justapi version --json";

/// Exit statuses of every command but `bench` and `profile`.
pub(crate) const EXIT_CODES: &str = "Exit codes:
    0  success, also when the reader closed the pipe or the server stopped on a signal
    1  the operation ran and failed, or a check found problems
    2  usage: a flag or argument is wrong
    3  the configuration is invalid
    4  the application or the model cannot be loaded
    5  the address cannot be listened on
    6  the environment lacks something
    7  files are in the way of a new project
   70  internal error
  130  ended by Ctrl-C before the work was done; 143 by SIGTERM

`justapi explain CODE` explains an error code.";

/// Exit statuses of `bench`.
pub(crate) const BENCH_EXIT_CODES: &str = "Exit codes:
    0  measured, or the ledger is in order
    1  usage or configuration
    2  a rule of the matrix failed, or a threshold was broken
    3  a rule was inconclusive, or a threshold undecided
    4  the measurement is invalid: wrong answers, or a rate that was not reached
    5  the target is unreachable, or no request succeeded
    6  the ledger does not verify
  130  interrupted by Ctrl-C, after a report of what was measured";

/// Exit statuses of `profile`.
pub(crate) const PROFILE_EXIT_CODES: &str = "Exit codes:
    0  measured
    1  usage: a flag, the URL or a file cannot be used
    4  the measurement is invalid: wrong answers, a rate that was not reached, or a server
       that was lost meanwhile
    5  the server is unreachable, does not start, answers with an error page, or no request
       succeeded
  130  interrupted by Ctrl-C, after a report of what was measured";

/// Help template with the examples first after the usage line.
pub(crate) fn template(examples: &str) -> String {
    let heading = anstyle::AnsiColor::Green.on_default().bold();
    let indented = examples.replace('\n', "\n  ");
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n\
         {heading}Examples:{heading:#}\n  {indented}\n\n{{all-args}}{{after-help}}"
    )
}

/// Every example line.
#[cfg(test)]
pub(crate) fn examples() -> impl Iterator<Item = &'static str> {
    [
        JUSTAPI,
        NEW,
        SERVE,
        DEV,
        BENCH,
        BENCH_LLM,
        PROFILE,
        INFER,
        INFER_RUN,
        INFER_CHAT,
        INFER_INSPECT,
        INFER_BENCH,
        INFER_EMBED,
        INFER_PERPLEXITY,
        ROUTES,
        OPENAPI,
        CHECK,
        DOCTOR,
        SELF,
        CONFIG,
        EXPLAIN,
        COMPLETIONS,
        MAN,
        VERSION,
    ]
    .into_iter()
    .flat_map(str::lines)
}
