//! Every error code: what it means, what to do, and the exit status.
//!
//! Guarantee: a code cannot be used without an explanation and an exit
//! status, since both are matches over the one enum.

/// Why a command did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    OutputWrite,
    Usage,
    FlagConflict,
    AnswerMissing,
    AnswerInvalid,
    ExplainArgument,
    ProjectName,
    TemplateUnknown,
    PromptMissing,
    PromptRefused,
    Conversation,
    UnknownKey,
    ConfigUnreadable,
    ConfigSyntax,
    ConfigValue,
    EnvironmentValue,
    UnknownVariable,
    SettingConflict,
    DescriptorLimit,
    TlsFile,
    TlsConfig,
    StaticFolder,
    Application,
    ApplicationOpaque,
    DocumentFailed,
    DocumentDrift,
    DocumentFile,
    ModelUnknown,
    ModelFetch,
    ModelFile,
    ModelMemory,
    ModelSetting,
    NoGpu,
    ChatTemplate,
    ApiKeys,
    AddressInUse,
    AddressForbidden,
    AddressUnavailable,
    HostUnknown,
    UnixSocketInUse,
    ListenFailed,
    InheritedListener,
    LaneStart,
    PidFile,
    ServerStopped,
    AcceptFailed,
    SignalWatch,
    WorkerEnded,
    WorkersFail,
    WorkerStuck,
    Interpreter,
    WatchFallback,
    Toolchain,
    ManagedInstallation,
    NoRelease,
    NotInstalled,
    InstallerFailed,
    DestinationConflict,
    DestinationUnwritable,
    TemplateInvalid,
    TemplateFetch,
    BenchInput,
    BenchUnreachable,
    BenchFailed,
    LedgerBroken,
    BenchInvalid,
    BenchThreshold,
    BenchUndecided,
    ProbeRefused,
    ServerLost,
    ProfiledServer,
    Internal,
}

impl Code {
    /// Every code, in order.
    pub(crate) const ALL: [Self; 72] = [
        Self::OutputWrite,
        Self::Usage,
        Self::FlagConflict,
        Self::AnswerMissing,
        Self::AnswerInvalid,
        Self::ExplainArgument,
        Self::ProjectName,
        Self::TemplateUnknown,
        Self::PromptMissing,
        Self::PromptRefused,
        Self::Conversation,
        Self::UnknownKey,
        Self::ConfigUnreadable,
        Self::ConfigSyntax,
        Self::ConfigValue,
        Self::EnvironmentValue,
        Self::UnknownVariable,
        Self::SettingConflict,
        Self::DescriptorLimit,
        Self::TlsFile,
        Self::TlsConfig,
        Self::StaticFolder,
        Self::Application,
        Self::ApplicationOpaque,
        Self::DocumentFailed,
        Self::DocumentDrift,
        Self::DocumentFile,
        Self::ModelUnknown,
        Self::ModelFetch,
        Self::ModelFile,
        Self::ModelMemory,
        Self::ModelSetting,
        Self::NoGpu,
        Self::ChatTemplate,
        Self::ApiKeys,
        Self::AddressInUse,
        Self::AddressForbidden,
        Self::AddressUnavailable,
        Self::HostUnknown,
        Self::UnixSocketInUse,
        Self::ListenFailed,
        Self::InheritedListener,
        Self::LaneStart,
        Self::PidFile,
        Self::ServerStopped,
        Self::AcceptFailed,
        Self::SignalWatch,
        Self::WorkerEnded,
        Self::WorkersFail,
        Self::WorkerStuck,
        Self::Interpreter,
        Self::WatchFallback,
        Self::Toolchain,
        Self::ManagedInstallation,
        Self::NoRelease,
        Self::NotInstalled,
        Self::InstallerFailed,
        Self::DestinationConflict,
        Self::DestinationUnwritable,
        Self::TemplateInvalid,
        Self::TemplateFetch,
        Self::BenchInput,
        Self::BenchUnreachable,
        Self::BenchFailed,
        Self::LedgerBroken,
        Self::BenchInvalid,
        Self::BenchThreshold,
        Self::BenchUndecided,
        Self::ProbeRefused,
        Self::ServerLost,
        Self::ProfiledServer,
        Self::Internal,
    ];

    /// The code as it is printed.
    #[expect(clippy::too_many_lines, reason = "one line per code")]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::OutputWrite => "JA101",
            Self::Usage => "JA201",
            Self::FlagConflict => "JA202",
            Self::AnswerMissing => "JA203",
            Self::AnswerInvalid => "JA204",
            Self::ExplainArgument => "JA205",
            Self::ProjectName => "JA206",
            Self::TemplateUnknown => "JA207",
            Self::PromptMissing => "JA208",
            Self::PromptRefused => "JA209",
            Self::Conversation => "JA210",
            Self::UnknownKey => "JA301",
            Self::ConfigUnreadable => "JA302",
            Self::ConfigSyntax => "JA303",
            Self::ConfigValue => "JA304",
            Self::EnvironmentValue => "JA305",
            Self::UnknownVariable => "JA306",
            Self::SettingConflict => "JA307",
            Self::DescriptorLimit => "JA308",
            Self::TlsFile => "JA311",
            Self::TlsConfig => "JA312",
            Self::StaticFolder => "JA313",
            Self::Application => "JA401",
            Self::ApplicationOpaque => "JA403",
            Self::DocumentFailed => "JA411",
            Self::DocumentDrift => "JA412",
            Self::DocumentFile => "JA413",
            Self::ModelUnknown => "JA421",
            Self::ModelFetch => "JA422",
            Self::ModelFile => "JA423",
            Self::ModelMemory => "JA424",
            Self::ModelSetting => "JA425",
            Self::NoGpu => "JA426",
            Self::ChatTemplate => "JA427",
            Self::ApiKeys => "JA428",
            Self::AddressInUse => "JA501",
            Self::AddressForbidden => "JA502",
            Self::AddressUnavailable => "JA503",
            Self::HostUnknown => "JA504",
            Self::UnixSocketInUse => "JA505",
            Self::ListenFailed => "JA506",
            Self::InheritedListener => "JA507",
            Self::LaneStart => "JA511",
            Self::PidFile => "JA512",
            Self::ServerStopped => "JA513",
            Self::AcceptFailed => "JA514",
            Self::SignalWatch => "JA515",
            Self::WorkerEnded => "JA521",
            Self::WorkersFail => "JA522",
            Self::WorkerStuck => "JA523",
            Self::Interpreter => "JA601",
            Self::WatchFallback => "JA602",
            Self::Toolchain => "JA603",
            Self::ManagedInstallation => "JA611",
            Self::NoRelease => "JA612",
            Self::NotInstalled => "JA613",
            Self::InstallerFailed => "JA614",
            Self::DestinationConflict => "JA701",
            Self::DestinationUnwritable => "JA702",
            Self::TemplateInvalid => "JA703",
            Self::TemplateFetch => "JA704",
            Self::BenchInput => "JA801",
            Self::BenchUnreachable => "JA802",
            Self::BenchFailed => "JA803",
            Self::LedgerBroken => "JA804",
            Self::BenchInvalid => "JA805",
            Self::BenchThreshold => "JA806",
            Self::BenchUndecided => "JA807",
            Self::ProbeRefused => "JA808",
            Self::ServerLost => "JA809",
            Self::ProfiledServer => "JA810",
            Self::Internal => "JA900",
        }
    }

    /// Exit status of a command that ends with this code.
    #[expect(clippy::too_many_lines, reason = "one line per code")]
    pub(crate) const fn exit(self) -> u8 {
        match self {
            Self::OutputWrite
            | Self::DocumentFailed
            | Self::DocumentDrift
            | Self::DocumentFile
            | Self::ManagedInstallation
            | Self::NoRelease
            | Self::NotInstalled
            | Self::InstallerFailed
            | Self::PidFile
            | Self::ServerStopped
            | Self::AcceptFailed
            | Self::WorkerEnded
            | Self::WorkersFail
            | Self::WorkerStuck
            | Self::DestinationUnwritable
            | Self::TemplateInvalid
            | Self::TemplateFetch
            | Self::BenchInput
            | Self::BenchFailed => 1,
            Self::Usage
            | Self::FlagConflict
            | Self::AnswerMissing
            | Self::AnswerInvalid
            | Self::ExplainArgument
            | Self::ProjectName
            | Self::TemplateUnknown
            | Self::PromptMissing
            | Self::PromptRefused
            | Self::Conversation
            | Self::ModelSetting
            | Self::BenchThreshold => 2,
            Self::UnknownKey
            | Self::ConfigUnreadable
            | Self::ConfigSyntax
            | Self::ConfigValue
            | Self::EnvironmentValue
            | Self::UnknownVariable
            | Self::SettingConflict
            | Self::DescriptorLimit
            | Self::TlsFile
            | Self::TlsConfig
            | Self::StaticFolder
            | Self::ApiKeys
            | Self::BenchUndecided => 3,
            Self::AddressInUse
            | Self::AddressForbidden
            | Self::AddressUnavailable
            | Self::HostUnknown
            | Self::UnixSocketInUse
            | Self::ListenFailed
            | Self::InheritedListener
            | Self::BenchUnreachable
            | Self::ProbeRefused
            | Self::ProfiledServer => 5,
            Self::Application
            | Self::ApplicationOpaque
            | Self::ModelUnknown
            | Self::ModelFetch
            | Self::ModelFile
            | Self::ChatTemplate
            | Self::BenchInvalid
            | Self::ServerLost => 4,
            Self::LaneStart
            | Self::SignalWatch
            | Self::Interpreter
            | Self::Toolchain
            | Self::WatchFallback
            | Self::ModelMemory
            | Self::NoGpu
            | Self::LedgerBroken => 6,
            Self::DestinationConflict => 7,
            Self::Internal => 70,
        }
    }

    /// A paragraph on what happened, why, and what to do.
    #[expect(clippy::too_many_lines, reason = "one paragraph per code")]
    pub(crate) const fn explanation(self) -> &'static str {
        match self {
            Self::OutputWrite => {
                "The result could not be written to standard output, for example because the disk \
                 behind a redirection is full. What was written so far is incomplete. A reader that \
                 closes a pipe early, as `head` does, is not an error."
            }
            Self::Usage => {
                "The command line has a flag or an argument that this command does not know, or one \
                 of them has a value that it cannot take. The message names it and, where one is \
                 close, the spelling that was probably meant. `justapi COMMAND --help` lists every \
                 flag."
            }
            Self::FlagConflict => {
                "Two flags that were given cannot be used together, or one needs another that is \
                 missing. Give one of them only, or add the missing one."
            }
            Self::AnswerMissing => {
                "`justapi new` needs something that no flag says, and there is nobody to ask: it \
                 asks only where standard input and standard error are a terminal, CI is unset, and \
                 neither `--yes` nor `--json` is given. The message names the flag."
            }
            Self::AnswerInvalid => {
                "`--set` answers a question that the template does not ask, or with something that \
                 is not among the possible answers. `justapi new --list` shows the questions of \
                 each template with what can be answered."
            }
            Self::ExplainArgument => {
                "`justapi explain` was asked for a code that does not exist. `justapi explain` \
                 without a code lists them all."
            }
            Self::ProjectName => {
                "A project cannot have this name: it could not be imported, or it would hide a \
                 module of the language, of its standard library or of a package that the project \
                 imports. The message says which, and proposes a name like it. `--name` sets the \
                 name where the folder shall keep its own."
            }
            Self::TemplateUnknown => {
                "`--template` names no template of the program, no folder that can be read, and no \
                 git repository. `justapi new --list` shows the templates of the program. A folder \
                 in the working directory that is called like one of them is `./NAME`."
            }
            Self::PromptMissing => {
                "`justapi infer` has nothing to work on: no prompt was given and standard input is a \
                 terminal, or what came in is empty or not UTF-8. Give the prompt as one argument in \
                 quotes, or pipe it in. `justapi infer chat` asks for it instead."
            }
            Self::PromptRefused => {
                "The model cannot take this prompt, most of the time because prompt and answer are \
                 longer together than its context. `--ctx N` sets the context up to what the model was \
                 made for, `--max-tokens N` shortens the answer. Nothing is cut off in silence."
            }
            Self::Conversation => {
                "A conversation of `justapi infer chat` could not be saved, or the file is none. It \
                 is JSON: an object with `messages`, each of which has a `role` of system, user or \
                 assistant and a `content` of text."
            }
            Self::UnknownKey => {
                "A warning: the configuration file sets a key that does not exist, so the line has \
                 no effect. Most of the time it is a typing error, and the nearest known key is \
                 named. `justapi config show` lists every key."
            }
            Self::ConfigUnreadable => {
                "The configuration file could not be read: it does not exist, it is a folder, or \
                 its permissions do not allow it. Without `--config`, `justapi.toml` is searched in \
                 the working directory and above it up to the folder that holds `.git`, and it may \
                 be absent."
            }
            Self::ConfigSyntax => {
                "The configuration file is not valid TOML. The message points at the first place \
                 that could not be read. Common causes are a missing quote, a `:` in place of `=`, \
                 and the same key twice."
            }
            Self::ConfigValue => {
                "A key of the configuration file has a value of the wrong type or out of its \
                 range. Times are strings with a unit (\"30s\"), sizes are strings with a unit \
                 (\"10MiB\") or numbers of bytes, switches are true or false."
            }
            Self::EnvironmentValue => {
                "An environment variable that configures justapi has a value that cannot be read. \
                 It is an error, since a server that ignores its configuration is worse than one \
                 that does not start. Each key `a.b` has the variable JUSTAPI_A__B."
            }
            Self::UnknownVariable => {
                "A warning: a variable of the form JUSTAPI_SECTION__KEY is set, but there is no \
                 such key, so it has no effect. The nearest known variable is named."
            }
            Self::SettingConflict => {
                "The settings do not work together, for example a certificate without its key. \
                 `justapi config show --origin` says where each value comes from."
            }
            Self::DescriptorLimit => {
                "A warning: the server may take more connections than the process may have open \
                 descriptors, so some would be refused by the system instead of by the limit. \
                 Raise the hard limit (`ulimit -Hn`, LimitNOFILE in systemd), or lower \
                 `--max-connections`."
            }
            Self::TlsFile => {
                "A certificate, key or authority file could not be read, or holds nothing of the \
                 kind that was expected. Files are PEM: the certificate file holds the server's \
                 certificate first and then its intermediates, the key file one private key \
                 (PKCS#8, PKCS#1 or SEC1)."
            }
            Self::TlsConfig => {
                "The certificate and the key were read but do not form a usable TLS \
                 configuration, most often because the key belongs to another certificate."
            }
            Self::StaticFolder => {
                "A folder of `--static` is not there, is no folder, or may not be entered by this \
                 process. A relative one is taken from the working directory on the command line, \
                 and from the configuration file's folder in it."
            }
            Self::Application => {
                "The Python application could not be loaded or did not start: its module raised an \
                 exception, the name after the colon does not exist, or its lifespan failed. The \
                 traceback begins with your own code. `justapi serve package.module:app` names the \
                 module as it is imported from the working directory, or from `--app-dir`."
            }
            Self::ApplicationOpaque => {
                "The application was imported, but it is of a kind that cannot be asked for its \
                 routes or its document: any ASGI or WSGI callable can be served, and only a \
                 JustAPI application, or one that has `routes` and `openapi()` as FastAPI's have, \
                 can be looked at."
            }
            Self::DocumentFailed => {
                "The application was imported, but its OpenAPI document cannot be made; the \
                 traceback says why. Most of the time a type has no JSON Schema. Requests for the \
                 document would be answered with 500. `justapi check` names each route at fault."
            }
            Self::DocumentDrift => {
                "`justapi openapi --check FILE` found that the document of the application is not \
                 the one in the file. Each difference is printed with its place. If the change is \
                 meant, write the file again with `--output FILE`; otherwise the application has \
                 changed its interface by mistake."
            }
            Self::DocumentFile => {
                "The file with the OpenAPI document could not be written, or the one to compare with \
                 could not be read as JSON. A file is written beside its place and then renamed, so \
                 a document is never half there."
            }
            Self::ModelUnknown => {
                "There is no model of this name. What `--model` says is a path, if one is there: a \
                 GGUF file, or a folder with config.json and safetensors. Else it is a short name, \
                 such as smollm2:135m, or a repository of a hub as org/name, org/name:Q4_K_M, \
                 org/name:file.gguf or org/name@revision."
            }
            Self::ModelFetch => {
                "The model is not on this machine and could not be brought here: the network, the \
                 hub's answer, the disk, or `--offline` is in the way, and the message says which. \
                 Another run goes on where a download stopped. HF_ENDPOINT names another hub, HF_TOKEN \
                 a token, HF_HOME a folder on another disk."
            }
            Self::ModelFile => {
                "The file of the model is damaged, is something else, or is of a kind that is not \
                 run. Those that are: llama, mistral, qwen2, qwen3, gemma2 and gemma3, as GGUF with \
                 weights in F32, F16, BF16, Q4_0 to Q8_0 or Q2_K to Q6_K, or as a folder of \
                 safetensors with tokenizer.json."
            }
            Self::ModelMemory => {
                "The weights with the keys and values of the context take more memory than is free. \
                 `justapi infer inspect` shows both numbers. A model with smaller weights or a shorter \
                 context (`--ctx N`) needs less; so do fewer blocks (`--pool-blocks N`) of a server."
            }
            Self::ModelSetting => {
                "A setting of the engine cannot be met by this model or this machine, such as a \
                 context that is longer than the model was made for. The message names the setting \
                 and the rule."
            }
            Self::NoGpu => {
                "`--gpu` asks for an NVIDIA GPU, and this program was built without the feature \
                 `cuda`. Without the flag the model runs on the processor."
            }
            Self::ChatTemplate => {
                "A chat needs a template that makes one text of its messages. A base model has none: \
                 it continues texts. Or the template is broken, or it does not take these messages; \
                 the message has its own words. `--chat-template FILE` takes another one."
            }
            Self::ApiKeys => {
                "The file of `--api-key-file` cannot be used: it cannot be read, others than its \
                 owner may read it, or it has no key. It has one key a line, as KEY or NAME:KEY, and \
                 mode 600."
            }
            Self::AddressInUse => {
                "Another program listens on this address already. Its command line and process id \
                 are shown when the system lets us read them. Choose another port, let `--port 0` \
                 choose one, or stop the other program. Two justapi servers never share a port \
                 silently."
            }
            Self::AddressForbidden => {
                "The system does not allow this process to listen on this address. Ports below \
                 1024 need a privilege. Listen on a high port behind a proxy, grant \
                 CAP_NET_BIND_SERVICE, or hand the socket over from systemd (LISTEN_FDS). For a \
                 Unix socket, the folder must be writable."
            }
            Self::AddressUnavailable => {
                "The address does not belong to any interface of this machine, so nothing can be \
                 listened for there. Use 127.0.0.1 for this machine only, 0.0.0.0 for every \
                 IPv4 interface, or :: for every interface."
            }
            Self::HostUnknown => {
                "The host name could not be turned into an address. Check its spelling and \
                 /etc/hosts, or give an IP address."
            }
            Self::UnixSocketInUse => {
                "A live process answers on this Unix socket, so it was left alone. Stop that \
                 process or use another path. A socket file that nobody serves any more is \
                 replaced without asking."
            }
            Self::ListenFailed => {
                "The system refused to open the listening socket for a reason other than the \
                 usual ones; the cause is its own message. For a Unix socket, the folder must \
                 exist and the path must be shorter than 108 bytes."
            }
            Self::InheritedListener => {
                "The descriptor of `--fd` or LISTEN_FDS is not a listening stream socket. The \
                 program that starts justapi must open it, call listen on it, and pass it on \
                 without close-on-exec."
            }
            Self::LaneStart => {
                "A serving thread could not be started. Most often the limit of processes or of \
                 open descriptors is too low (`ulimit -u`, `ulimit -n`). Fewer `--lanes` need \
                 fewer of both."
            }
            Self::PidFile => {
                "The file of `--pid-file` could not be written. Its folder must exist and be \
                 writable."
            }
            Self::ServerStopped => {
                "The serving threads ended although no stop signal came. This is a defect, of which \
                 the lines before the error tell more. Please report it with the output of \
                 `justapi version --json`."
            }
            Self::AcceptFailed => {
                "A warning: the server runs, but the system refuses new connections, most often \
                 since the process has as many open descriptors as it may (`ulimit -n`). It goes on \
                 trying. Raise the limit, or lower `--max-connections` below it."
            }
            Self::SignalWatch => {
                "The system did not let the process watch for SIGINT and SIGTERM, without which it \
                 could not stop gracefully. Most often the limit of threads or of open descriptors \
                 is too low (`ulimit -u`, `ulimit -n`)."
            }
            Self::WorkerEnded => {
                "A warning: a worker process has ended and is started again. Requests on its \
                 connections were lost, others were not. A signal such as SIGSEGV points at a \
                 native extension, SIGKILL often at the system being out of memory. One that cannot \
                 be started is tried again, too; the limit that was reached is named."
            }
            Self::WorkersFail => {
                "Worker processes ended soon after their start, again and again, so the server gave \
                 up instead of trying for ever. The lines before say how each of them ended."
            }
            Self::WorkerStuck => {
                "A warning: a handler has kept a worker's thread for `--stuck-timeout` without \
                 giving it back, so nobody else is answered there. What every thread of the worker \
                 does stands on standard error; another worker takes its place, and the requests on \
                 its connections are lost. A handler that computes for that long belongs into a \
                 thread or process of its own, or the time wants to be longer."
            }
            Self::Interpreter => {
                "No usable Python interpreter was found, or the one that was found lacks the package \
                 `justapi` in the version of this program. They are looked for beside this program, \
                 in VIRTUAL_ENV, in `.venv` and `venv` upwards, in CONDA_PREFIX and in PATH; \
                 `--python PATH` names one."
            }
            Self::Toolchain => {
                "`justapi dev` builds applications in Rust with cargo, which is looked for in PATH. \
                 https://rustup.rs says how to install it."
            }
            Self::WatchFallback => {
                "`justapi dev` is not told of every change: the file system has no events (NFS, \
                 SMB, 9P, virtiofs and other shares), a limit of the system's is reached \
                 (`sysctl fs.inotify` has them), or a folder cannot be read. It looks at the \
                 files again and again instead; `--poll-interval` says how often."
            }
            Self::ManagedInstallation => {
                "This program was installed with the Python package `justapi`, so the package manager \
                 of that environment updates and removes both together. The hint has its command. \
                 Replacing the program alone would leave a package of another version beside it."
            }
            Self::NoRelease => {
                "`justapi self update` fetches release archives from the directory that \
                 JUSTAPI_DOWNLOAD_URL names, and it does not know where that is, or which version \
                 to take from it. Nothing is looked up on the network by itself. What was built from \
                 sources is updated by building them again."
            }
            Self::NotInstalled => {
                "`justapi self` changes only what install.sh has installed, by the receipt that it \
                 keeps in `$XDG_DATA_HOME/justapi` or `~/.local/share/justapi`. This program is not \
                 listed there: it was built in a checkout, installed by cargo, or is part of an image."
            }
            Self::InstallerFailed => {
                "The installer that `justapi self` runs has failed; what it said stands above. The \
                 program is replaced by one rename at the very end, after its checksum was compared \
                 and it was started once, so the one that was installed still is."
            }
            Self::DestinationConflict => {
                "The project would overwrite files, or mix with files that are none of its own. \
                 Nothing was written. `--force` writes the template's files all the same, keeps \
                 those that it replaces as `*.orig`, and never removes anything; `--dry-run` shows \
                 what it would do. A folder or a link where the template has a file is never \
                 replaced."
            }
            Self::DestinationUnwritable => {
                "The project could not be written: the folder does not exist or does not allow it, \
                 or the disk is full. Whatever had been written was removed again, so there is no \
                 half of a project."
            }
            Self::TemplateInvalid => {
                "The template cannot be used: its `template.toml` is missing or wrong, a file of it \
                 uses a name that is not defined, or a path leads out of the project or into \
                 `.git`. Links and whatever is no plain file are refused, too. Nothing was written."
            }
            Self::TemplateFetch => {
                "git could not fetch the template: it is not installed, the repository cannot be \
                 reached, or it has no such branch, tag or commit. git uses your own configuration \
                 and keys, and asks for no password. Nothing was written."
            }
            Self::BenchInput => {
                "The benchmark cannot be run as it was asked: the URL, the body file, the matrix \
                 or a number is not usable. Nothing was measured."
            }
            Self::BenchUnreachable => {
                "No request succeeded, so there is no rate to report. Check that the server runs, \
                 that the URL is right, and that it answers with a status below 400. Errors are \
                 never counted as throughput."
            }
            Self::BenchFailed => {
                "The benchmark could not be completed. The cause says which step failed. What was \
                 measured before is not added to the ledger."
            }
            Self::LedgerBroken => {
                "The ledger does not verify: a row or a record was edited, removed or reordered, \
                 or a claim does not equal its record. The message names each place. Restore the \
                 files from version control; do not repair them by hand."
            }
            Self::BenchInvalid => {
                "The load ran, but its numbers are not those of what was asked for: answers were \
                 not the expected one, or an open loop got an answer to less than 99 % of its \
                 requests, so that its latencies describe an overload. `--allow-underrun` takes \
                 the second on purpose."
            }
            Self::BenchThreshold => {
                "A condition of `--fail-if` holds, so the run has failed by it. The message has \
                 what was found; the report has the rest."
            }
            Self::BenchUndecided => {
                "A condition of `--fail-if` could not be decided: what it is about was not \
                 measured, or from too few samples. A p90 needs 44 samples, a p95 90, a p99 459 \
                 and a p99.9 4603."
            }
            Self::ProbeRefused => {
                "`justapi profile` asks for each path once before it measures, and this one was \
                 answered with an error page or a redirection: a profile of it would look fast and \
                 say nothing. `--expect-status N` profiles such an answer on purpose. Nothing was \
                 measured."
            }
            Self::ServerLost => {
                "The server ended, or answered no more, while it was measured. The report holds what \
                 was measured of that path and of those before it, but a part of the requests met \
                 no server. What the server logged at its end says more."
            }
            Self::ProfiledServer => {
                "The application that was to be measured could not be started as `justapi serve` \
                 starts it. The code and the message are those of `serve`; `justapi explain` knows \
                 the code, and `justapi serve` with the same target shows the same error."
            }
            Self::Internal => {
                "A defect in justapi itself. Please report the message, the output of `justapi \
                 version --json`, and what you did. RUST_BACKTRACE=1 adds a backtrace."
            }
        }
    }

    /// What the codes of its hundred are about.
    pub(crate) fn family(self) -> &'static str {
        match self.as_str().as_bytes()[2] {
            b'1' => "output",
            b'2' => "command line",
            b'3' => "configuration",
            b'4' => "applications and models",
            b'5' => "addresses and the running server",
            b'6' => "environment and installation",
            b'7' => "new projects",
            b'8' => "measurements",
            _ => "justapi itself",
        }
    }

    /// The code of this text, in any case: `JA501`, `501`, or as it stands in
    /// a message, `error[JA501]:`.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches(':');
        let text = text
            .rsplit_once('[')
            .map_or(text, |(_, code)| code.trim_end_matches(']'));
        Self::ALL.into_iter().find(|code| {
            let known = code.as_str();
            known.eq_ignore_ascii_case(text) || known.strip_prefix("JA") == Some(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_ordered_unique_and_explained() {
        assert!(
            Code::ALL
                .windows(2)
                .all(|pair| pair[0].as_str() < pair[1].as_str())
        );
        for code in Code::ALL {
            let text = code.explanation();
            assert!(text.len() > 60 && text.ends_with('.'), "{code:?}");
            assert!(!text.contains("  "), "{code:?}");
            assert_eq!(Code::from_text(&code.as_str().to_lowercase()), Some(code));
            assert_eq!(Code::from_text(&code.as_str()[2..]), Some(code));
            let shown = format!("warning[{}]:", code.as_str());
            assert_eq!(Code::from_text(&shown), Some(code));
        }
    }
}
