//! The router's behaviour, case by case and against a linear scan.

use std::cell::Cell;

use http::header::{ALLOW, LOCATION};
use proptest::prelude::*;

use super::*;
use crate::body::Body;
use crate::handler::{FutureSlot, inline};
use crate::request::Request;
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

/// Method and pattern or path of a line.
fn split(line: &str) -> [&str; 2] {
    line.split_once(' ').unwrap().into()
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
fn typed_values_that_do_not_parse_fall_through() {
    let router = build(&["GET /i/{id:int}", "GET /f/{rest:path}"]);
    check(&router, "GET /i/-12", "GET /i/{id:int} id=-12");
    check(&router, "GET /i/%31%32", "GET /i/{id:int} id=12");
    check(&router, "GET /i/%2B1", "GET /i/{id:int} id=+1");
    check(&router, "GET /i/x", "404");
    check(&router, "GET /i/1%2F2", "404");
    check(&router, "GET /f/a/b", "GET /f/{rest:path} rest=a/b");
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    let router = build(&[
        "GET /{rest:path}",
        "GET /{any}",
        "GET /{f:float}",
        "GET /{i:int}",
        "GET /{u:uint}",
        "GET /{id:uuid}",
        "GET /{i:int}/x",
    ]);
    check(
        &router,
        &format!("GET /{uuid}"),
        &format!("GET /{{id:uuid}} id={uuid}"),
    );
    check(&router, "GET /7", "GET /{u:uint} u=7");
    check(&router, "GET /-7", "GET /{i:int} i=-7");
    check(&router, "GET /7.5", "GET /{f:float} f=7.5");
    check(&router, "GET /seven", "GET /{any} any=seven");
    check(&router, "GET /7/", "GET /{rest:path} rest=7/");
    check(&router, "GET /7/x", "GET /{i:int}/x i=7");
    check(&router, "GET /7/y", "GET /{rest:path} rest=7/y");
}

#[test]
fn choices_are_given_up_one_by_one() {
    let router = build(&[
        "GET /{a}/{b}/c/d",
        "GET /x/{b}/c/e",
        "GET /x/{b:int}/{*rest}",
        "GET /{a:int}/y/c/d",
        "GET /{*all}",
    ]);
    check(&router, "GET /x/y/c/d", "GET /{a}/{b}/c/d a=x b=y");
    check(
        &router,
        "GET /x/1/c/e",
        "GET /x/{b:int}/{*rest} b=1 rest=c/e",
    );
    check(&router, "GET /x/y/c/e", "GET /x/{b}/c/e b=y");
    check(&router, "GET /1/y/c/d", "GET /{a:int}/y/c/d a=1");
    check(&router, "GET /1/2/c/d", "GET /{a}/{b}/c/d a=1 b=2");
    check(&router, "GET /1/y/c/f", "GET /{*all} all=1/y/c/f");
}

#[test]
fn other_methods_do_not_hide_a_less_specific_route() {
    let router = build(&["POST /a/b", "PUT /a/{x:int}", "GET /{x}/{y}", "PURGE /{*z}"]);
    check(&router, "GET /a/b", "GET /{x}/{y} x=a y=b");
    check(&router, "GET /a/1", "GET /{x}/{y} x=a y=1");
    check(&router, "PURGE /a/b", "PURGE /{*z} z=a/b");
    check(&router, "PATCH /a/b", "405 GET, HEAD, OPTIONS, POST, PURGE");
    check(&router, "PATCH /a/1", "405 GET, HEAD, OPTIONS, PURGE, PUT");
    let router = build(&["GET /a", "HEAD /{x}", "ANY /b", "GET /{y}"]);
    check(&router, "HEAD /a", "HEAD /{x} x=a");
    check(&router, "HEAD /b", "HEAD /{x} x=b");
    check(&router, "GET /b", "ANY /b");
}

#[test]
fn long_paths_are_cut_like_short_ones() {
    let long = "s".repeat(30);
    let other = format!("{}t{}", "s".repeat(14), "s".repeat(15));
    let pattern = format!("GET /{long}/{{a}}/{long}/{{b}}/{{c}}/{{d}}/{{e}}/end");
    let router = build(&[&pattern]);
    let path = |first: &str, value: &str, last: &str| {
        format!("GET /{first}/{value}/{long}/2/3/{value}/5/{last}")
    };
    check(
        &router,
        &path(&long, &long, "end"),
        &format!("{pattern} a={long} b=2 c=3 d={long} e=5"),
    );
    check(&router, &path(&other, "1", "end"), "404");
    // Alike in length and in the eight bytes at either end.
    let routes = [
        "GET /services/v1/projects/{a}",
        "GET /services/v2/projects/{b}",
    ];
    let alike = build(&routes);
    check(
        &alike,
        "GET /services/v1/projects/1",
        &format!("{} a=1", routes[0]),
    );
    check(
        &alike,
        "GET /services/v2/projects/1",
        &format!("{} b=1", routes[1]),
    );
    check(&alike, "GET /services/v3/projects/1", "404");
    check(&router, &path(&long, "1", "ends"), "404");
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
    let spans = [(3, 4), (7, 12), (13, 16)].into_iter().collect();
    let expected = PathParams::new(&["a", "b", "c"], spans);
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
        try_build(&["GET /z", "PUT /a/{x:int}/b", "PUT /a/{y:int}/b"]),
        "PUT",
        ["/a/{y:int}/b", "/a/{x:int}/b"],
    );
    conflict(
        try_build(&["GET /a/{x}/b", "GET /a/{*y}", "GET /a/{z:path}"]),
        "GET",
        ["/a/{z:path}", "/a/{*y}"],
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
    build(&[
        "GET /a/{x}",
        "POST /a/{y}",
        "GET /a/{x}/",
        "GET /a/{n:int}",
        "GET /a/{*rest}",
        "ANY /a/{z}",
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
        build(&["GET /{x:int}"]).merge(build(&["GET /{y:int}"])),
        "GET",
        ["/{y:int}", "/{x:int}"],
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

/// Stands for a `/` that was encoded, which ends no segment.
const ENCODED_SLASH: char = '\u{1}';

/// A path with its triplets read, but for the slashes among them.
fn plain(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut plain = pieces.next().unwrap().to_owned();
    for piece in pieces {
        let (digits, rest) = piece.split_at(2);
        let byte = u8::from_str_radix(digits, 16).unwrap();
        plain.push(match char::from(byte) {
            '/' => ENCODED_SLASH,
            other => other,
        });
        plain.push_str(rest);
    }
    plain
}

/// What [`outcome`] should be, from a look at every route.
fn linear_scan(routes: &[&str], request: &str) -> String {
    let (method, path) = request.split_once(' ').unwrap();
    let matching: Vec<(Vec<u8>, &str, &str)> = routes
        .iter()
        .filter_map(|route| {
            let (of, pattern) = route.split_once(' ').unwrap();
            Some((rank(pattern, path)?, of, pattern))
        })
        .collect();
    // Routes of the first method that has any win over those of the next.
    let best_of = |methods: &[&str]| {
        let candidates = matching.iter().filter(|(_, of, _)| methods.contains(of));
        candidates.min_by_key(|(rank, of, _)| (rank, *of == "ANY"))
    };
    let best = match method {
        "HEAD" => best_of(&["HEAD"]).or_else(|| best_of(&["GET", "ANY"])),
        _ => best_of(&[method, "ANY"]),
    };
    if let Some((_, of, pattern)) = best {
        return format!("{of} {pattern}{}", values(pattern, path));
    }
    let mut allow: Vec<&str> = matching.iter().map(|(_, of, _)| *of).collect();
    if allow.is_empty() {
        return "404".into();
    }
    if allow.contains(&"GET") {
        allow.push("HEAD");
    }
    allow.push("OPTIONS");
    allow.sort_unstable();
    allow.dedup();
    let status = if method == "OPTIONS" { "204" } else { "405" };
    format!("{status} {}", allow.join(", "))
}

fn values(pattern: &str, path: &str) -> String {
    let mut words = String::new();
    let mut rest = path;
    for segment in pattern[1..].split('/') {
        rest = &rest[1..];
        let end = rest.find('/').unwrap_or(rest.len());
        let Some(name) = segment.strip_prefix('{') else {
            rest = &rest[end..];
            continue;
        };
        let end = if name.starts_with('*') {
            rest.len()
        } else {
            end
        };
        let name = name.trim_start_matches('*').split([':', '}']).next();
        words = words + " " + name.unwrap() + "=" + &rest[..end];
        rest = &rest[end..];
    }
    words
}

/// How specific a pattern is by segment, if it matches; the least wins.
fn rank(pattern: &str, path: &str) -> Option<Vec<u8>> {
    let mut ranks = Vec::new();
    let mut rest = Some(path.strip_prefix('/')?);
    for segment in pattern[1..].split('/') {
        let here = rest?;
        if segment.starts_with("{*") {
            ranks.push(5);
            return (!here.is_empty()).then_some(ranks);
        }
        let (value, after) = match here.split_once('/') {
            Some((value, after)) => (value, Some(after)),
            None => (here, None),
        };
        let (matches, rank) = match segment.strip_prefix('{') {
            None => (segment == value, 0),
            Some(name) if name.ends_with(":uint}") => (value.parse::<u64>().is_ok(), 1),
            Some(name) if name.ends_with(":int}") => (value.parse::<i64>().is_ok(), 2),
            Some(name) if name.ends_with(":float}") => {
                (value.parse::<f64>().is_ok_and(f64::is_finite), 3)
            }
            Some(_) => (!value.is_empty(), 4),
        };
        if !matches {
            return None;
        }
        ranks.push(rank);
        rest = after;
    }
    rest.is_none().then_some(ranks)
}

fn method_strategy() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => Just("GET"),
        2 => Just("POST"),
        1 => Just("HEAD"),
        1 => Just("OPTIONS"),
        1 => Just("PURGE"),
        1 => Just("COPY"),
    ]
}

fn path_strategy() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "(/[ab1.-]{0,2}){1,6}",
        1 => "(/([ab1.-]|%6[12]|%31|%2[DEFdef]|%25|%40|%7[ac]){0,2}){1,6}",
    ]
}

fn pattern_strategy() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        5 => "[ab1-]{1,2}".prop_map(|text| text),
        1 => Just(String::new()),
        3 => Just("{".to_owned()),
        2 => prop::sample::select(vec!["uint", "int", "float"]).prop_map(str::to_owned),
    ];
    (
        prop::collection::vec(segment, 1..5),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(segments, open)| {
            let segments = segments.iter().enumerate();
            let written = segments.map(|(index, segment)| match segment.as_str() {
                "{" => format!("/{{p{index}}}"),
                "uint" | "int" | "float" => format!("/{{p{index}:{segment}}}"),
                text => format!("/{text}"),
            });
            let mut pattern: Vec<String> = written.collect();
            if open {
                pattern.push("/{*rest}".into());
            }
            pattern.concat()
        })
}

fn route_strategy() -> impl Strategy<Value = String> {
    let method = prop_oneof![5 => method_strategy(), 1 => Just("ANY")];
    (method, pattern_strategy()).prop_map(|(method, pattern)| format!("{method} {pattern}"))
}

/// A pattern with all parameters of a type alike: what makes a conflict.
fn nameless(route: &str) -> String {
    let mut parts = route.split('/');
    let method = parts.next().unwrap().to_owned();
    parts.fold(method, |text, segment| {
        let segment = match segment.strip_prefix('{') {
            Some(name) if !name.starts_with('*') => {
                name.trim_start_matches(|c| c != ':' && c != '}')
            }
            _ => segment,
        };
        text + "/" + segment
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn agrees_with_a_linear_scan(
        routes in prop::collection::vec(route_strategy(), 1..40),
        requests in prop::collection::vec((method_strategy(), path_strategy()), 1..24),
    ) {
        let mut accepted: Vec<&str> = Vec::new();
        let mut router = Router::new();
        for route in &routes {
            let clash = accepted.iter().find(|other| nameless(other) == nameless(route));
            let one = build(&[route]);
            if let Some(existing) = clash {
                let [method, pattern] = split(route);
                let method = if method == "ANY" { "GET" } else { method };
                conflict(build(&[existing]).merge(one), method, [pattern, split(existing)[1]]);
            } else {
                accepted.push(route);
                router = router.merge(one).unwrap();
            }
        }
        for (method, path) in &requests {
            let request = format!("{method} {path}");
            let expected = linear_scan(&accepted, &format!("{method} {}", plain(path)));
            let expected = expected.replace(ENCODED_SLASH, "/");
            prop_assert_eq!(outcome(&router, &request), expected, "{} in {:?}", request, accepted);
        }
    }

    #[test]
    fn no_path_panics_and_redirects_stay_here(
        patterns in prop::collection::vec(pattern_strategy(), 0..12),
        path in "/?[/ab1%2-4CFé\\\\\t]{0,12}",
        policy in prop::sample::select(vec![TrailingSlash::Redirect, TrailingSlash::Ignore]),
    ) {
        let mut router = Router::new().trailing_slash(policy);
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
