//! Matrix files: what is read, and what is refused.

use super::*;

const GOOD: &str = r#"
        [program.ours]
        command = ["{bin}"]
        [[cell]]
        id = "hello"
        kind = "load"
        path = "/hello"
        rounds = 6
        measure_ms = 10
        arms = [{ program = "ours" }, { program = "ours", label = "aa", same_as = "ours" }]
        [[cell.target]]
        id = "cpu"
        metric = "cpu_us_per_request"
        arm = "ours"
        versus = "aa"
        overhead_at_most = 0.03
        margin = 0.02
    "#;

fn parse(text: &str) -> Result<Matrix, String> {
    Matrix::parse(text, Path::new("m.toml")).map_err(|error| match error {
        Error::Matrix { problem, .. } => problem,
        Error::MatrixSyntax { source, .. } => source.message().to_owned(),
        other => panic!("{other}"),
    })
}

#[test]
fn a_limit_on_overhead_is_a_limit_on_the_ratio() {
    let matrix = parse(GOOD).unwrap();
    let target = &matrix.cells[0].targets().unwrap()[0];
    assert_eq!(target.limit, Decimal::new(1.03).unwrap());
    assert_eq!(target.margin, Decimal::new(0.02).unwrap());
    assert_eq!(matrix.cells[0].expect_status, 200);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (from, to, expected) in [
        ("rounds = 6", "rounds = 5", "fewer than 6 rounds"),
        ("measure_ms = 10", "measure_ms = 0", "measure_ms is missing"),
        (
            "kind = \"load\"",
            "kind = \"load\"\nspeed = 1",
            "unknown field `speed`",
        ),
        (
            "label = \"aa\", same_as = \"ours\"",
            "label = \"aa\"",
            "noise would be unknown",
        ),
        (
            "same_as = \"ours\" }",
            "same_as = \"ours\", tls = true }",
            "not the same",
        ),
        ("versus = \"aa\"", "versus = \"b\"", "no such arm"),
        ("versus = \"aa\"", "", "needs versus"),
        ("margin = 0.02", "at_most = 1.0", "exactly one limit"),
        (
            "{ program = \"ours\" }",
            "{ program = \"x\" }",
            "no program x",
        ),
        ("id = \"hello\"", "id = \"a:b\"", "not a name"),
        (
            "kind = \"load\"",
            "kind = \"micro\"\nfunction = \"f\"",
            "a function or arms",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_cell_has_as_many_rounds_as_its_rules_need() {
    let found: Vec<u32> = [0, 1, 2, 3, 6, 10, 13].map(min_rounds).to_vec();
    assert_eq!(found, [6, 6, 7, 7, 8, 9, 10]);
    let rule = GOOD.split_once("[[cell.target]]").unwrap().1;
    let second = rule.replacen("id = \"cpu\"", "id = \"again\"", 1);
    let error = parse(&format!("{GOOD}\n[[cell.target]]{second}")).unwrap_err();
    assert_eq!(
        error,
        "fewer than 7 rounds, which its 2 rules need together"
    );
}

#[test]
fn the_shipped_matrices_are_good() {
    let mut ids = BTreeSet::new();
    for text in [
        include_str!("../../../matrix/client.toml"),
        include_str!("../../../matrix/core.toml"),
        include_str!("../../../matrix/features.toml"),
        include_str!("../../../matrix/growth.toml"),
        include_str!("../../../matrix/micro.toml"),
        include_str!("../../../matrix/python.toml"),
        include_str!("../../../matrix/reload.toml"),
        include_str!("../../../matrix/web.toml"),
    ] {
        let matrix = parse(text).unwrap();
        assert!(matrix.programs.values().any(|program| program.subject));
        for cell in matrix.cells {
            assert!(ids.insert(cell.id.clone()), "{} is in both", cell.id);
        }
    }
}

#[test]
fn an_arm_can_have_an_exchange_of_its_own() {
    let arm = "{ program = \"ours\" }";
    let own = "{ program = \"ours\" }, { program = \"ours\", label = \"other\", \
                   engagement = \"sent_total\", exchange = { path = \"/other\", \
                   expect_body = \"other\" } }";
    let text = GOOD.replacen(arm, own, 1).replacen(
        "path = \"/hello\"",
        "path = \"/hello\"\nmethod = \"POST\"",
        1,
    );
    let cell = &parse(&text).unwrap().cells[0];
    let exchange = cell.arms[1].exchange.as_ref().unwrap().workload();
    assert_eq!(cell.workload().unwrap().method, "POST");
    assert_eq!((&*exchange.method, &*exchange.path), ("GET", "/other"));
    assert_eq!(
        exchange.expect_body_sha256,
        Some(crate::ledger::sha256_hex(b"other"))
    );
    assert_eq!(cell.arms[1].engagement.as_deref(), Some("sent_total"));

    let aa = "same_as = \"ours\" }";
    let differs = "same_as = \"ours\", exchange = { path = \"/other\" } }";
    let error = parse(&GOOD.replacen(aa, differs, 1)).unwrap_err();
    assert!(error.contains("not the same"), "{error}");
    let unknown = "same_as = \"ours\", exchange = { path = \"/\", speed = 1 } }";
    let error = parse(&GOOD.replacen(aa, unknown, 1)).unwrap_err();
    assert!(error.contains("unknown field `speed`"), "{error}");
}

#[test]
fn clients_are_compared_among_each_other() {
    let programs = "[program.wrk]\ncommand = [\"wrk\"]\nreport = \"wrk\"\n";
    let with_clients = GOOD
        .replacen(
            "{ program = \"ours\" }",
            "{ program = \"ours\", client = \"wrk\" }",
            1,
        )
        .replacen("same_as", "client = \"wrk\", same_as", 1)
        .replacen("measure_ms = 10", "measure_ms = 2000", 1)
        + programs;
    let cell = &parse(&with_clients).unwrap().cells[0];
    assert_eq!(cell.arms[1].client.as_deref(), Some("wrk"));
    for (from, to, expected) in [
        (
            "client = \"wrk\", same_as",
            "same_as",
            "all arms have a client or none",
        ),
        (
            "client = \"wrk\", same_as",
            "client = \"oha\", same_as",
            "no program oha with a report",
        ),
        (
            "client = \"wrk\", same_as",
            "client = \"ours\", same_as",
            "no program ours with a report",
        ),
        (
            "program = \"ours\", client",
            "program = \"wrk\", client",
            "is a client and no server",
        ),
        ("rounds = 6", "rounds = 6\nmethod = \"POST\"", "plain GET"),
        (
            "rounds = 6",
            "rounds = 6\nheaders = { a = \"b\" }",
            "plain GET",
        ),
        ("measure_ms = 2000", "measure_ms = 2500", "whole seconds"),
        ("report = \"wrk\"", "report = \"ab\"", "unknown variant"),
        ("rounds = 6", "rounds = 6\nrate = 5.0", "do not agree on"),
        ("[\"wrk\"]", "[\"wrk\", \"{rate}\"]", "do not agree on"),
        (
            "rounds = 6",
            "rounds = 6\nbackground = { connections = 1, exchange = { path = \"/\" } }",
            "beside the bench's own client",
        ),
    ] {
        assert!(with_clients.contains(from), "{from}");
        let error = parse(&with_clients.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_cell_has_one_kind_of_exchange() {
    let with = |lines: &str| {
        let id = "id = \"hello\"";
        parse(&GOOD.replacen(id, &format!("{id}\n{lines}"), 1))
    };
    let echo = "echo = { text = true, bytes = 64 }";
    let feed = "feed = { path = \"/feed\", bytes = 64 }";
    let coding = "coding = \"br\"";
    let workload = |lines| with(lines).unwrap().cells[0].workload().unwrap();
    assert_eq!(workload(echo).echo.unwrap().bytes, 64);
    assert_eq!(workload(feed).feed.unwrap().path, "/feed");
    let coded = workload("coding = \"br\"\nexpect_body = \"a\"");
    assert_eq!(coded.coding, Some(Coding::Br));
    assert_eq!(coded.headers["accept-encoding"], "br");
    for (lines, expected) in [
        (format!("{echo}\n{feed}"), "exclude each other"),
        (
            format!("{echo}\n{coding}\nexpect_body = \"\""),
            "begins with a GET",
        ),
        (format!("{echo}\nmethod = \"POST\""), "begins with a GET"),
        (coding.to_owned(), "must be known"),
        (echo.replace("64", "15"), "a message has"),
        (feed.replace("64", "2000000"), "a message has"),
        (String::from("coding = \"deflate\""), "unknown variant"),
    ] {
        let error = with(&lines).unwrap_err();
        assert!(error.contains(expected), "{lines}: {error}");
    }
    for (from, to, expected) in [
        (
            "versus = \"aa\"",
            "versus = \"aa\"\nless = \"b\"",
            "no such arm",
        ),
        ("versus = \"aa\"", "less = \"aa\"", "less is a part"),
    ] {
        let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_rate_and_a_background_are_of_requests_by_the_engine() {
    let with = |lines: &str| {
        let id = "id = \"hello\"";
        parse(&GOOD.replacen(id, &format!("{id}\n{lines}"), 1))
    };
    let background = "background = { connections = 2, exchange = { path = \"/b\" } }";
    let cell = &with(&format!("rate = 250.5\n{background}")).unwrap().cells[0];
    assert_eq!(cell.rate, Some(250.5));
    assert_eq!(cell.background.as_ref().unwrap().exchange.path, "/b");
    for (lines, expected) in [
        ("rate = 0.0", "a number of requests per second"),
        ("rate = inf", "a number of requests per second"),
        ("rate = -1.0", "a number of requests per second"),
        (
            "rate = 1.0\necho = { text = true, bytes = 64 }",
            "requests of a load cell",
        ),
        (&background.replace("= 2", "= 0"), "has connections"),
        (
            &background.replace("exchange = { path = \"/b\" }", "path = \"/b\""),
            "unknown field",
        ),
    ] {
        let error = with(lines).unwrap_err();
        assert!(error.contains(expected), "{lines}: {error}");
    }
    let counted = GOOD
        .replacen(
            "{ program = \"ours\" }",
            "{ program = \"ours\", engagement = \"n\" }",
            1,
        )
        .replacen("same_as", "engagement = \"n\", same_as", 1)
        .replacen(
            "id = \"hello\"",
            &format!("id = \"hello\"\n{background}"),
            1,
        );
    let error = parse(&counted).unwrap_err();
    assert!(error.contains("would count the background"), "{error}");
    let start = GOOD.replacen("kind = \"load\"", "kind = \"start\"\nrate = 1.0", 1);
    let error = parse(&start).unwrap_err();
    assert!(error.contains("requests of a load cell"), "{error}");
}

#[test]
fn a_reload_cell_says_what_is_saved() {
    let saves = "reload = { constant = \"V\", count = 3, settle_ms = 0, patience_ms = 9 }";
    let good = GOOD
        .replacen("kind = \"load\"", &format!("kind = \"reload\"\n{saves}"), 1)
        .replacen("cpu_us_per_request", "reload_p50_ms", 1);
    let cell = &parse(&good).unwrap().cells[0];
    assert_eq!(cell.reload.as_ref().unwrap().count, 3);
    for (from, to, expected) in [
        (saves, "", "reload is missing"),
        (
            "kind = \"reload\"",
            "kind = \"load\"",
            "only a reload cell saves",
        ),
        ("count = 3", "count = 0", "saves of a constant"),
        ("\"V\"", "\"\"", "saves of a constant"),
        (
            "patience_ms = 9",
            "patience_ms = 0",
            "patience_ms is the time",
        ),
        (
            "settle_ms = 0",
            "settle_ms = 0, speed = 1",
            "unknown field `speed`",
        ),
        ("rounds = 6", "rounds = 6\nmethod = \"HEAD\"", "a plain GET"),
        (
            "rounds = 6",
            "rounds = 6\nexpect_body = \"0\"",
            "a plain GET",
        ),
        ("rounds = 6", "rounds = 6\nbody = \"0\"", "without a body"),
        (
            "arms = [",
            "file = { name = \"f\", bytes = 1 }\narms = [",
            "only a load cell",
        ),
        ("reload_p50_ms", "reload_p95_ms", "it has no ratio"),
        ("reload_p50_ms", "reload_lost", "it has no ratio"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = parse(&good.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_file_is_the_expected_body() {
    let with = |file: &str| {
        let id = "id = \"hello\"";
        parse(&GOOD.replacen(id, &format!("{id}\nfile = {{ {file} }}"), 1))
    };
    let matrix = with("name = \"f.bin\", bytes = 4096").unwrap();
    let workload = matrix.cells[0].workload().unwrap();
    assert_eq!(workload.file.as_ref().unwrap().bytes, 4096);
    let digest = sha256_hex(&content(&workload.file.clone().unwrap()));
    assert_eq!(workload.expect_body_sha256, Some(digest));
    for (file, expected) in [
        ("name = \"../f\", bytes = 1", "not a name"),
        ("name = \"f\", bytes = 0", "1 to 67108864 bytes"),
        ("name = \"f\", bytes = 67108865", "1 to 67108864 bytes"),
        ("name = \"f\"", "missing field `bytes`"),
        (
            "name = \"f\", bytes = 1 }\nexpect_body = \"a\"\nheaders = { a = \"b\"",
            "two bodies",
        ),
    ] {
        let error = with(file).unwrap_err();
        assert!(error.contains(expected), "{file}: {error}");
    }
}
