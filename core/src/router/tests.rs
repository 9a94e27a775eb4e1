//! The router's behaviour, case by case and against a linear scan.

use std::cell::Cell;

use http::header::{ALLOW, LOCATION};
use proptest::prelude::*;

use super::*;
use crate::body::Body;
use crate::handler::{FutureSlot, inline};
use crate::request::{ParamValue, Request};
use crate::response::Response;

/// Builds a router from lines such as `GET /a`, `ANY /b` and `PURGE /c`.
fn build(routes: &[&str]) -> Router {
    try_build(routes).unwrap()
}

fn try_build(routes: &[&str]) -> Result<Router, Error> {
    routes.iter().try_fold(Router::new(), |router, line| {
        let (method, pattern) = line.split_once(' ').unwrap();
        let name = (*line).to_owned();
        let handler = inline(move |_: Request| name.clone());
        match method {
            "ANY" => router.any(pattern, handler),
            _ => router.route(method.parse().unwrap(), pattern, handler),
        }
    })
}

/// Outcome of a lookup in words: `GET /{a} a=1`, `405 GET, HEAD`, `404`.
fn outcome(router: &Router, request: &str) -> String {
    let (method, path) = request.split_once(' ').unwrap();
    let method = method.parse().unwrap();
    match router.find(&method, path) {
        Lookup::Found { route, params } => {
            let mut words = route.method().map_or("ANY", Method::as_str).to_owned();
            words = words + " " + route.pattern();
            for (name, value) in params.iter(path) {
                words = words + " " + name + "=" + value;
            }
            words
        }
        Lookup::MethodNotAllowed { allow } => format!("405 {}", allow.to_str().unwrap()),
        Lookup::Options { allow } => format!("204 {}", allow.to_str().unwrap()),
        Lookup::Redirect { path } => format!("308 {path}"),
        Lookup::BadPath => "400".into(),
        Lookup::NotFound => "404".into(),
    }
}

#[track_caller]
fn check(router: &Router, request: &str, expected: &str) {
    assert_eq!(outcome(router, request), expected, "{request}");
}

#[track_caller]
fn conflict(result: Result<Router, Error>, expected_method: &str, expected: [&str; 2]) {
    match result.unwrap_err() {
        Error::RouteConflict {
            method,
            path,
            existing,
        } => {
            assert_eq!([path.as_str(), existing.as_str()], expected);
            assert_eq!(method.as_str(), expected_method);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn literal_beats_parameter_beats_catch_all() {
    let router = build(&[
        "GET /",
        "GET /users/me",
        "GET /users/{name}",
        "GET /users/{name}/posts/{post}",
        "GET /users/me/drafts",
        "GET /{*rest}",
    ]);
    check(&router, "GET /", "GET /");
    check(&router, "GET /users/me", "GET /users/me");
    check(&router, "GET /users/mel", "GET /users/{name} name=mel");
    check(
        &router,
        "GET /users/me/posts/3",
        "GET /users/{name}/posts/{post} name=me post=3",
    );
    check(&router, "GET /users/me/drafts", "GET /users/me/drafts");
    check(
        &router,
        "GET /users/you/drafts",
        "GET /{*rest} rest=users/you/drafts",
    );
    check(&router, "GET /users/", "GET /{*rest} rest=users/");
    check(&router, "GET //x", "GET /{*rest} rest=/x");
}

#[test]
fn parameters_and_catch_alls_are_never_empty() {
    let router = build(&["GET /a/{x}", "GET /b/{*rest}", "GET /c/{x}/d"]);
    check(&router, "GET /a/", "404");
    check(&router, "GET /a", "404");
    check(&router, "GET /a//", "404");
    check(&router, "GET /b/", "404");
    check(&router, "GET /b", "404");
    check(&router, "GET /c//d", "404");
    check(&router, "GET /b//", "GET /b/{*rest} rest=/");
}

#[test]
fn targets_that_are_no_paths_are_not_found() {
    let router = build(&["GET /", "GET /{*rest}"]).trailing_slash(TrailingSlash::Redirect);
    check(&router, "GET ", "404");
    check(&router, "GET *", "404");
    check(&router, "GET a/b", "404");
}

#[test]
fn typed_values_that_do_not_parse_are_not_found() {
    let router = build(&["GET /i/{id:int}", "GET /f/{rest:path}", "GET /{*rest}"]);
    check(&router, "GET /i/-12", "GET /i/{id:int} id=-12");
    check(&router, "GET /i/%31%32", "GET /i/{id:int} id=12");
    check(&router, "GET /i/x", "404");
    check(&router, "GET /i/1%2F2", "404");
    check(&router, "GET /f/a/b", "GET /f/{rest:path} rest=a/b");
}

#[test]
fn spellings_of_one_path_match_alike() {
    let router = build(&["GET /café", "GET /~me/{x}", "GET /%7bx%7d"]);
    check(&router, "GET /caf%C3%A9", "GET /café");
    check(&router, "GET /caf%c3%a9", "GET /café");
    check(&router, "GET /café", "GET /café");
    check(&router, "GET /%7Eme/1", "GET /~me/{x} x=1");
    check(&router, "GET /%7Bx%7D", "GET /%7bx%7d");
}

#[test]
fn encoded_slash_stays_inside_its_parameter() {
    let router = build(&["GET /units/{unit}", "GET /x/{a}/{b}", "GET /f/{*rest}"]);
    check(&router, "GET /units/kg%2Fs", "GET /units/{unit} unit=kg/s");
    check(&router, "GET /units/kg%2fs", "GET /units/{unit} unit=kg/s");
    check(&router, "GET /units/kg/s", "404");
    check(&router, "GET /x/%41%42/c", "GET /x/{a}/{b} a=AB b=c");
    check(
        &router,
        "GET /x/%2541/caf%C3%A9",
        "GET /x/{a}/{b} a=%41 b=café",
    );
    check(&router, "GET /f/a%20b/c%2Fd", "GET /f/{*rest} rest=a b/c/d");
    check(&router, "GET /f/%2e%2e/c", "GET /f/{*rest} rest=../c");
}

#[test]
fn broken_encoding_is_a_bad_path_wherever_it_is() {
    let router = build(&["GET /a/{x}"]);
    for path in [
        "/a/%zz",
        "/a/%f",
        "/a/%",
        "/a/%00",
        "/a/%ff",
        "/none/%C3/%A9",
    ] {
        check(&router, &format!("GET {path}"), "400");
    }
}

#[test]
fn values_that_need_no_decoding_are_spans_of_the_sent_path() {
    let router = build(&["GET /s/{a}/x/{b}/{*c}"]);
    let Lookup::Found { params, .. } = router.find(&Method::GET, "/s/a/x/plain/y/z") else {
        panic!("not found");
    };
    let mut expected = PathParams::default();
    expected.push("a", ParamValue::Span(3, 4));
    expected.push("b", ParamValue::Span(7, 12));
    expected.push("c", ParamValue::Span(13, 16));
    assert_eq!(params, expected);
}

#[test]
fn other_methods_make_it_405_with_a_complete_allow() {
    let router = build(&[
        "GET /a",
        "DELETE /a",
        "PURGE /a",
        "POST /{x}",
        "PUT /n/{id:int}",
        "HEAD /h",
        "OPTIONS /o",
    ]);
    check(
        &router,
        "PUT /a",
        "405 DELETE, GET, HEAD, OPTIONS, POST, PURGE",
    );
    check(
        &router,
        "COPY /a",
        "405 DELETE, GET, HEAD, OPTIONS, POST, PURGE",
    );
    check(&router, "POST /a", "POST /{x} x=a");
    check(&router, "GET /b", "405 OPTIONS, POST");
    check(&router, "GET /n/1", "405 OPTIONS, PUT");
    check(&router, "GET /n/x", "404");
    check(&router, "GET /h", "405 HEAD, OPTIONS, POST");
    check(&router, "GET /o", "405 OPTIONS, POST");
    check(&router, "GET /a/b", "404");
    check(&router, "PURGE /a", "PURGE /a");
}

#[test]
fn head_is_answered_by_get_unless_it_has_a_route() {
    let router = build(&["GET /a", "GET /b", "HEAD /b", "POST /c", "ANY /d", "GET /d"]);
    check(&router, "HEAD /a", "GET /a");
    check(&router, "HEAD /b", "HEAD /b");
    check(&router, "HEAD /c", "405 OPTIONS, POST");
    check(&router, "HEAD /d", "GET /d");
}

#[test]
fn options_is_automatic_unless_it_has_a_route() {
    let router = build(&["GET /a", "OPTIONS /b", "GET /b", "ANY /c"]);
    check(&router, "OPTIONS /a", "204 GET, HEAD, OPTIONS");
    check(&router, "OPTIONS /b", "OPTIONS /b");
    check(&router, "OPTIONS /c", "ANY /c");
    check(&router, "OPTIONS /d", "404");
}

#[test]
fn any_answers_every_method_and_yields_to_a_specific_route() {
    for routes in [
        [
            "ANY /a",
            "GET /a",
            "ANY /{x}",
            "POST /{x:int}",
            "GET /s/{*p}",
            "ANY /s/mcp",
        ],
        [
            "GET /a",
            "ANY /a",
            "POST /{x:int}",
            "ANY /{x}",
            "ANY /s/mcp",
            "GET /s/{*p}",
        ],
    ] {
        let router = build(&routes);
        check(&router, "GET /a", "GET /a");
        check(&router, "PUT /a", "ANY /a");
        check(&router, "PURGE /a", "ANY /a");
        check(&router, "POST /7", "POST /{x:int} x=7");
        check(&router, "POST /seven", "ANY /{x} x=seven");
        check(&router, "GET /7", "ANY /{x} x=7");
        check(&router, "GET /s/mcp", "ANY /s/mcp");
        check(&router, "GET /s/x", "GET /s/{*p} p=x");
        check(&router, "POST /s/x", "405 GET, HEAD, OPTIONS");
    }
}

#[test]
fn custom_method_first_seen_after_any_keeps_its_any_routes() {
    let router = build(&["ANY /a", "PURGE /b", "ANY /c"]);
    check(&router, "PURGE /a", "ANY /a");
    check(&router, "PURGE /b", "PURGE /b");
    check(&router, "PURGE /c", "ANY /c");
    check(&router, "GET /b", "405 OPTIONS, PURGE");
}

#[test]
fn strict_tells_trailing_slashes_apart() {
    let router = build(&["GET /a", "GET /b/"]);
    check(&router, "GET /a/", "404");
    check(&router, "GET /b", "404");
}

#[test]
fn redirect_leads_to_the_registered_form() {
    let router = build(&[
        "GET /a",
        "GET /b/",
        "POST /p/",
        "ANY /y",
        "GET /both",
        "POST /both/",
    ])
    .trailing_slash(TrailingSlash::Redirect);
    check(&router, "GET /a", "GET /a");
    check(&router, "GET /a/", "308 /a");
    check(&router, "HEAD /a/", "308 /a");
    check(&router, "GET /b", "308 /b/");
    check(&router, "GET /%62", "308 /b/");
    check(&router, "GET /p", "404");
    check(&router, "PURGE /y/", "308 /y");
    check(&router, "POST /both", "308 /both/");
    check(&router, "PUT /both", "405 GET, HEAD, OPTIONS");
    check(&router, "GET /a//", "404");
    check(&router, "OPTIONS /a/", "404");
}

#[test]
fn redirect_never_leaves_this_host() {
    let router = build(&[
        "GET //evil.com",
        "GET //{host}/",
        "GET /{x}",
        "GET /{x}/{y:int}/",
    ])
    .trailing_slash(TrailingSlash::Redirect);
    check(&router, "GET //evil.com/", "GET //{host}/ host=evil.com");
    check(&router, "GET //other.com", "404");
    check(&router, "GET /\\evil.com/", "404");
    check(&router, "GET /\t/evil.com/", "404");
    check(&router, "GET ///", "404");
    check(&router, "GET /%2Fevil.com/", "308 /%2Fevil.com");
    check(&router, "GET /%5Cevil.com/", "308 /%5Cevil.com");
    check(&router, "GET /%09/1", "308 /%09/1/");
    check(&router, "GET /é/", "308 /%C3%A9");
}

#[test]
fn ignore_serves_the_registered_form() {
    let router = build(&[
        "GET /a",
        "GET /b/",
        "POST /c",
        "PUT /c/",
        "GET /x/{id}",
        "GET /{*rest}",
    ])
    .trailing_slash(TrailingSlash::Ignore);
    check(&router, "POST /c/", "POST /c");
    check(&router, "DELETE /c", "405 GET, HEAD, OPTIONS, POST, PUT");
    check(&router, "OPTIONS /c/", "204 GET, HEAD, OPTIONS, POST, PUT");
    let router = build(&[
        "GET /a",
        "GET /b/",
        "GET /x/{id}",
        "GET /y/{id:int}",
        "GET /{*rest}",
    ])
    .trailing_slash(TrailingSlash::Ignore);
    check(&router, "GET /a", "GET /a");
    check(&router, "GET /y/no", "GET /{*rest} rest=y/no");
    let router = build(&["GET /a", "GET /b/", "GET /x/{id}"]).trailing_slash(TrailingSlash::Ignore);
    check(&router, "GET /a/", "GET /a");
    check(&router, "GET /b", "GET /b/");
    check(&router, "GET /x/1/", "GET /x/{id} id=1");
    check(&router, "GET /x/", "404");
    check(&router, "GET /", "404");
}

#[test]
fn conflicts_name_both_patterns_as_written() {
    conflict(try_build(&["GET /a", "GET /a"]), "GET", ["/a", "/a"]);
    conflict(
        try_build(&["GET /a/{x}", "GET /a/{y}"]),
        "GET",
        ["/a/{y}", "/a/{x}"],
    );
    conflict(
        try_build(&["GET /z", "PUT /a/{x:int}", "PUT /a/{y:uuid}"]),
        "PUT",
        ["/a/{y:uuid}", "/a/{x:int}"],
    );
    conflict(
        try_build(&["GET /{k}/b", "GET /a/{x}/b", "GET /a/{*y}"]),
        "GET",
        ["/a/{*y}", "/a/{x}/b"],
    );
    conflict(
        try_build(&["GET /{*y}", "GET /{x}/b"]),
        "GET",
        ["/{x}/b", "/{*y}"],
    );
    conflict(
        try_build(&["GET /café", "GET /caf%c3%a9"]),
        "GET",
        ["/caf%c3%a9", "/café"],
    );
    conflict(try_build(&["PURGE /a", "PURGE /a"]), "PURGE", ["/a", "/a"]);
    conflict(
        try_build(&["ANY /{a}", "ANY /{b}"]),
        "GET",
        ["/{b}", "/{a}"],
    );
    conflict(
        try_build(&["PUT /{a}", "ANY /{*b}"]),
        "PUT",
        ["/{*b}", "/{a}"],
    );
    conflict(
        try_build(&["ANY /{*b}", "PUT /{a}"]),
        "PUT",
        ["/{a}", "/{*b}"],
    );
    build(&[
        "GET /a/{x}",
        "POST /a/{y}",
        "GET /a/{x}/",
        "GET /b/{*rest}",
        "HEAD /a/{*z}",
    ]);
}

#[test]
fn conflicts_through_nest_and_merge_name_the_whole_patterns() {
    let inner = build(&["GET /{y}"]);
    conflict(
        build(&["GET /api/{x}"]).nest("/api", inner),
        "GET",
        ["/api/{y}", "/api/{x}"],
    );
    conflict(
        build(&["GET /{x:int}"]).merge(build(&["GET /{y}"])),
        "GET",
        ["/{y}", "/{x:int}"],
    );
}

#[test]
fn nest_puts_routes_below_its_prefix() {
    let inner = || build(&["GET /", "GET /items/{item}", "ANY /{*rest}"]);
    let router = build(&["GET /"])
        .nest("/shops/{shop}", inner())
        .unwrap()
        .nest("/slash/", inner())
        .unwrap();
    check(&router, "GET /shops/1", "GET /shops/{shop} shop=1");
    check(&router, "GET /shops/1/", "404");
    check(&router, "GET /slash/", "GET /slash/");
    check(&router, "GET /slash", "404");
    check(
        &router,
        "GET /shops/1/items/2",
        "GET /shops/{shop}/items/{item} shop=1 item=2",
    );
    check(
        &router,
        "PUT /shops/1/z",
        "ANY /shops/{shop}/{*rest} shop=1 rest=z",
    );
    let root = Router::new().nest("/", inner()).unwrap();
    check(&root, "GET /", "GET /");
    check(&root, "GET /items/2", "GET /items/{item} item=2");
}

#[test]
fn nest_refuses_prefixes_that_are_no_patterns() {
    for (prefix, inner) in [
        ("", build(&[])),
        ("api", build(&[])),
        ("/{*all}", build(&["GET /a"])),
        ("/{x}", build(&["GET /{x}"])),
    ] {
        let error = Router::new().nest(prefix, inner).unwrap_err();
        assert!(
            matches!(error, Error::RoutePattern { .. }),
            "{prefix}: {error}"
        );
    }
}

#[test]
fn ids_are_dense_in_registration_order() {
    let router = build(&["GET /a", "ANY /b"])
        .nest("/n", build(&["POST /c", "GET /d"]))
        .unwrap()
        .merge(build(&["GET /e"]))
        .unwrap();
    let listed: Vec<String> = router
        .routes()
        .map(|info| {
            let method = info.method.as_ref().map_or("ANY", Method::as_str);
            format!("{} {method} {}", info.id.0, info.pattern)
        })
        .collect();
    assert_eq!(
        listed,
        [
            "0 GET /a",
            "1 ANY /b",
            "2 POST /n/c",
            "3 GET /n/d",
            "4 GET /e"
        ]
    );
    for info in router.routes() {
        let method = info.method.unwrap_or(Method::GET);
        let Lookup::Found { route, .. } = router.find(&method, &info.pattern) else {
            panic!("{} not found", info.pattern);
        };
        assert_eq!(route.id(), info.id);
    }
}

/// Dispatches and gives the answer with the id that was set.
fn dispatch(router: &Router, method: &Method, uri: &str) -> (Response, RouteId) {
    let matched = Cell::new(RouteId::UNMATCHED);
    let request = Request::new(method.clone(), uri.parse().unwrap(), Body::empty());
    let response = router
        .dispatch(request, &matched, &mut FutureSlot::new())
        .expect("the handlers here are inline");
    (response, matched.get())
}

#[test]
fn dispatch_sets_parameters_and_route() {
    let echo = inline(|request: Request| {
        let unit = request.param("unit").unwrap().to_owned();
        if unit == "kg/s" { "right" } else { "wrong" }
    });
    let options = RouteOptions::new().max_body_bytes(7);
    let router = build(&["GET /a"])
        .route_with(Method::GET, "/units/{unit}", options, echo)
        .unwrap();
    let (response, id) = dispatch(&router, &Method::GET, "/units/kg%2Fs?q=1");
    assert_eq!((response.status().as_u16(), id), (200, RouteId(1)));
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(5));
    let nested = Router::new().nest("/n", router).unwrap();
    let Lookup::Found { route, .. } = nested.find(&Method::GET, "/n/units/x") else {
        panic!("not found");
    };
    assert_eq!(route.max_body_bytes(), Some(7));
}

#[test]
fn dispatch_answers_refusals_itself() {
    let router = build(&["GET /a", "GET /{x}/b"]).trailing_slash(TrailingSlash::Redirect);
    let refuse = |method, uri| {
        let (response, id) = dispatch(&router, &method, uri);
        assert_eq!(id, RouteId::UNMATCHED);
        let header = |name| {
            let value = response.headers().get(name);
            value.map_or("", |value| value.to_str().unwrap()).to_owned()
        };
        (
            response.status().as_u16(),
            header(ALLOW) + &header(LOCATION),
        )
    };
    let allow = "GET, HEAD, OPTIONS";
    assert_eq!(refuse(Method::GET, "/none"), (404, String::new()));
    assert_eq!(refuse(Method::GET, "/%zz"), (400, String::new()));
    assert_eq!(refuse(Method::POST, "/a"), (405, allow.into()));
    assert_eq!(refuse(Method::OPTIONS, "/a"), (204, allow.into()));
    assert_eq!(
        refuse(Method::GET, "/a/?q=1&r=%20"),
        (308, "/a?q=1&r=%20".into())
    );
    assert_eq!(refuse(Method::GET, "http://h/x/b/"), (308, "/x/b".into()));
}

/// What the router should choose: the best of all patterns that match,
/// comparing segment by segment literal < parameter < catch-all.
fn linear_scan(patterns: &[&str], path: &str) -> Option<String> {
    let best = patterns
        .iter()
        .filter_map(|pattern| Some((rank(pattern, path)?, pattern)))
        .min_by(|a, b| a.0.cmp(&b.0))?
        .1;
    let mut words = format!("GET {best}");
    let mut values = path[1..].split('/');
    for segment in best[1..].split('/') {
        let value = values.next().unwrap();
        let Some(name) = segment.strip_prefix('{') else {
            continue;
        };
        if let Some(name) = name.strip_prefix('*') {
            let rest: Vec<&str> = std::iter::once(value).chain(values).collect();
            words = words + " " + name.trim_end_matches('}') + "=" + &rest.join("/");
            break;
        }
        if name.ends_with(":int}") && value.parse::<i64>().is_err() {
            return None;
        }
        words = words + " " + name.split([':', '}']).next().unwrap() + "=" + value;
    }
    Some(words)
}

fn rank(pattern: &str, path: &str) -> Option<Vec<u8>> {
    let mut ranks = Vec::new();
    let mut rest = Some(path.strip_prefix('/')?);
    for segment in pattern[1..].split('/') {
        let here = rest?;
        if segment.starts_with("{*") {
            ranks.push(2);
            return (!here.is_empty()).then_some(ranks);
        }
        let (value, after) = match here.split_once('/') {
            Some((value, after)) => (value, Some(after)),
            None => (here, None),
        };
        if segment.starts_with('{') && !value.is_empty() {
            ranks.push(1);
        } else if segment == value {
            ranks.push(0);
        } else {
            return None;
        }
        rest = after;
    }
    rest.is_none().then_some(ranks)
}

fn pattern_strategy() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        5 => "[ab1]{1,2}".prop_map(|text| text),
        1 => Just(String::new()),
        3 => Just("{".to_owned()),
        1 => Just("int".to_owned()),
    ];
    (
        prop::collection::vec(segment, 1..5),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(segments, open)| {
            let segments = segments.iter().enumerate();
            let written = segments.map(|(index, segment)| match segment.as_str() {
                "{" => format!("/{{p{index}}}"),
                "int" => format!("/{{p{index}:int}}"),
                text => format!("/{text}"),
            });
            let mut pattern: Vec<String> = written.collect();
            if open {
                pattern.push("/{*rest}".into());
            }
            pattern.concat()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn agrees_with_a_linear_scan(
        patterns in prop::collection::vec(pattern_strategy(), 1..24),
        paths in prop::collection::vec("(/[ab1]{0,2}){1,6}", 1..24),
    ) {
        let mut accepted: Vec<&str> = Vec::new();
        let mut router = Router::new();
        for pattern in &patterns {
            accepted.push(pattern);
            let lines: Vec<String> = accepted.iter().map(|pattern| format!("GET {pattern}")).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            match try_build(&lines) {
                Ok(larger) => router = larger,
                Err(Error::RouteConflict { existing, .. }) => {
                    accepted.pop();
                    prop_assert!(accepted.contains(&existing.as_str()), "{existing} is no route");
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        for path in &paths {
            let expected = linear_scan(&accepted, path).unwrap_or_else(|| "404".into());
            prop_assert_eq!(outcome(&router, &format!("GET {path}")), expected, "{} in {:?}", path, accepted);
        }
    }

    #[test]
    fn no_path_panics_and_redirects_stay_here(
        patterns in prop::collection::vec(pattern_strategy(), 0..12),
        path in "/?[/ab1%2-4CFé\\\\\t]{0,12}",
    ) {
        let mut router = Router::new().trailing_slash(TrailingSlash::Redirect);
        for pattern in &patterns {
            let Ok(one) = Router::new().get(pattern, inline(|_| "")) else { continue };
            router = router.merge(one).unwrap_or_default();
        }
        match router.find(&Method::GET, &path) {
            Lookup::Found { params, .. } => prop_assert!(params.iter(&path).all(|(_, value)| !value.is_empty())),
            Lookup::Redirect { path } => {
                prop_assert!(path.starts_with('/') && !path.starts_with("//") && !path.contains('\t'));
            }
            _ => {}
        }
    }
}
