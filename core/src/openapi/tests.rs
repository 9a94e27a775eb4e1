//! The document of small routers, and the routes that serve it.

use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderValue, StatusCode};

use super::*;
use crate::body::Body;
use crate::handler::FutureSlot;
use crate::response::Response;
use crate::router::{Lookup, RouteId};
use crate::validation::{Accepted, Schema, validated};
use serde_json::json;

fn describe(router: &Router) -> Value {
    OpenApi::new("Test", "1").document(router)
}

fn nothing() -> impl crate::handler::Handler {
    inline(|_: Request| "")
}

#[test]
fn a_route_without_a_schema_says_what_body_it_takes() {
    const FORMS: [&str; 2] = ["application/x-www-form-urlencoded", "multipart/form-data"];
    let json = RouteOptions::new().body_types(&["application/json"]);
    let form = RouteOptions::new().body_types(&FORMS);
    let router = Router::new()
        .route_with(Method::POST, "/json", json, nothing())
        .and_then(|router| router.route_with(Method::POST, "/form", form, nothing()))
        .and_then(|router| router.post("/any", nothing()))
        .unwrap();
    let document = describe(&router);
    let body = |path: &str| &document["paths"][path]["post"]["requestBody"];
    assert_eq!(
        body("/json"),
        &json!({"required": true, "content": {"application/json": {}}})
    );
    let names = json!({"pattern": "^[^\\u0000-\\u001f\\u007f]*$"});
    let object = json!({"schema": {"type": "object"}});
    let parts = json!({"schema": {"type": "object", "propertyNames": names}});
    assert_eq!(
        body("/form"),
        &json!({"required": true, "content": {FORMS[0]: object, FORMS[1]: parts}})
    );
    assert_eq!(body("/any"), &json!({"content": {"*/*": {}}}));
}

#[test]
fn parameters_have_the_types_of_the_pattern() {
    let router = Router::new()
        .get(
            "/a/{i:int}/{u:uint}/{f:float}/{id:uuid}/{s}/{*rest}",
            nothing(),
        )
        .unwrap();
    let document = describe(&router);
    let operation = &document["paths"]["/a/{i}/{u}/{f}/{id}/{s}/{rest}"]["get"];
    let types: Vec<_> = operation["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| {
            assert_eq!(
                (&parameter["in"], &parameter["required"]),
                (&json!("path"), &json!(true))
            );
            let name = parameter["name"].as_str().unwrap();
            format!("{name}:{}", parameter["schema"]["type"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        types,
        [
            "i:integer",
            "u:integer",
            "f:number",
            "id:string",
            "s:string",
            "rest:string"
        ]
    );
    assert_eq!(operation["parameters"][5]["x-catch-all"], true);
    assert!(operation["responses"]["404"].is_object());
}

#[test]
fn paths_that_openapi_calls_identical_share_one_item() {
    let router = Router::new()
        .get("/a/{id:int}", nothing())
        .and_then(|router| router.delete("/a/{key}", nothing()))
        .and_then(|router| router.get("/a/{name}", nothing()))
        .and_then(|router| router.any("/a/{every}", nothing()))
        .unwrap();
    let document = describe(&router);
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.keys().collect::<Vec<_>>(), ["/a/{id}"]);
    let item = &paths["/a/{id}"];
    let methods: Vec<_> = item.as_object().unwrap().keys().collect();
    assert_eq!(methods, ["delete", "get", "patch", "post", "put"]);
    assert_eq!(item["get"]["parameters"][0]["schema"]["type"], "integer");
    assert_eq!(item["delete"]["parameters"][0]["name"], "id");
    assert_eq!(item["delete"]["parameters"][0]["schema"]["type"], "string");
    assert_eq!(document["x-other-routes"], json!(["GET /a/{name}"]));
}

#[test]
fn operation_ids_are_unique_words() {
    let options = RouteOptions::new().operation_id("list users");
    let router = Router::new()
        .route_with(Method::GET, "/users", options, nothing())
        .and_then(|router| router.route_with(Method::GET, "/people", options, nothing()))
        .and_then(|router| router.get("/a/b", nothing()))
        .and_then(|router| router.get("/a_b", nothing()))
        .and_then(|router| router.get("/", nothing()))
        .unwrap();
    let document = describe(&router);
    let id = |path: &str| document["paths"][path]["get"]["operationId"].clone();
    assert_eq!(
        [id("/users"), id("/people")],
        [json!("list_users"), json!("list_users_2")]
    );
    assert_eq!(
        [id("/a/b"), id("/a_b")],
        [json!("get_a_b"), json!("get_a_b_2")]
    );
    assert_eq!(id("/"), "get");
}

#[test]
fn options_are_shown_and_hidden_routes_are_not() {
    let options = RouteOptions::new()
        .summary("Short")
        .description("Long")
        .tags(&["b", "a"]);
    let router = Router::new()
        .route_with(Method::GET, "/shown", options, nothing())
        .and_then(|router| {
            router.route_with(
                Method::GET,
                "/hidden",
                RouteOptions::new().hidden(),
                nothing(),
            )
        })
        .unwrap();
    let document = OpenApi::new("Test", "2")
        .description("About")
        .server("https://example.com", "production")
        .document(&router);
    assert_eq!(document["paths"].as_object().unwrap().len(), 1);
    let operation = &document["paths"]["/shown"]["get"];
    assert_eq!(operation["summary"], "Short");
    assert_eq!(operation["description"], "Long");
    assert_eq!(document["tags"], json!([{"name": "b"}, {"name": "a"}]));
    assert_eq!(document["info"]["description"], "About");
    assert_eq!(document["servers"][0]["url"], "https://example.com");
    assert_eq!(operation.get("requestBody"), None);
}

#[test]
fn schemas_move_with_their_references() {
    let user = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A User",
        "properties": {
            "$ref": {"$ref": "#/$defs/x"},
            "const": {"$ref": "#"},
            "own": {"$id": "https://example.com/own", "$ref": "#/$defs/y", "$defs": {"y": {}}},
        },
        "const": {"$ref": "#/literal"},
        "$defs": {"x": {"prefixItems": [{"$ref": "#/$defs/x"}, {"$ref": "#anchor"}], "$anchor": "anchor"}},
    });
    let search = json!({
        "properties": {"n": {"$ref": "#/$defs/n", "description": "A number"}, "q": {"type": "string"}},
        "required": ["q"],
        "$defs": {"n": {"type": "integer"}},
    });
    let handler = || {
        validated()
            .body(Schema::new(user.clone()))
            .query(Schema::new(search.clone()))
            .answers(Schema::new(json!({"title": "A User"})))
            .inline(|_: Accepted| "")
    };
    let router = Router::new()
        .post("/a", handler())
        .and_then(|router| router.put("/a", handler()))
        .unwrap();
    let document = describe(&router);
    let operation = &document["paths"]["/a"]["post"];
    let content = |part: &Value| part["content"]["application/json"]["schema"]["$ref"].clone();
    let schemas = &document["components"]["schemas"];
    // The answer is stored first, and the other schema of that title second.
    assert_eq!(
        content(&operation["responses"]["200"]),
        "#/components/schemas/A_User"
    );
    assert_eq!(
        content(&operation["requestBody"]),
        "#/components/schemas/A_User_2"
    );
    assert_eq!(
        content(&document["paths"]["/a"]["put"]["requestBody"]),
        "#/components/schemas/A_User_2"
    );
    let moved = &schemas["A_User_2"];
    assert_eq!(
        moved["properties"]["$ref"]["$ref"],
        "#/components/schemas/A_User_2/$defs/x"
    );
    assert_eq!(
        moved["properties"]["const"]["$ref"],
        "#/components/schemas/A_User_2"
    );
    assert_eq!(moved["properties"]["own"]["$ref"], "#/$defs/y");
    assert_eq!(moved["const"]["$ref"], "#/literal");
    assert_eq!(moved["$defs"]["x"]["prefixItems"][1]["$ref"], "#anchor");
    assert_eq!(moved.get("$schema"), None);
    let parameters = operation["parameters"].as_array().unwrap();
    assert_eq!(
        parameters[0]["schema"]["$ref"],
        "#/components/schemas/post_a_query/$defs/n"
    );
    assert_eq!(parameters[0]["description"], "A number");
    assert_eq!(
        (&parameters[0]["required"], &parameters[1]["required"]),
        (&json!(false), &json!(true))
    );
    assert!(schemas["post_a_query"]["$defs"]["n"].is_object());
}

fn ask(router: &Router, path: &str, tag: Option<HeaderValue>) -> Response {
    let mut request = Request::new(Method::GET, path.parse().unwrap(), Body::empty());
    if let Some(tag) = tag {
        request.headers_mut().insert(IF_NONE_MATCH, tag);
    }
    let matched = std::cell::Cell::new(RouteId::UNMATCHED);
    let answer = router.dispatch(request, &matched, &mut FutureSlot::new());
    answer.expect("an inline handler")
}

#[test]
fn everything_is_served_with_a_tag() {
    let api = OpenApi::new("Test", "1");
    let router = api
        .mount(Router::new().get("/a", nothing()).unwrap())
        .unwrap();
    for path in [OPENAPI_PATH, DOCS_PATH, "/docs/page.css", "/docs/page.js"] {
        let response = ask(&router, path, None);
        assert_eq!(response.status(), StatusCode::OK);
        let tag = response.headers()[ETAG].clone();
        let list = format!("\"other\", W/{}", tag.to_str().unwrap());
        for known in [
            tag,
            HeaderValue::try_from(list).unwrap(),
            HeaderValue::from_static("*"),
        ] {
            assert_eq!(
                ask(&router, path, Some(known)).status(),
                StatusCode::NOT_MODIFIED
            );
        }
        let other = HeaderValue::from_static("\"other\"");
        assert_eq!(ask(&router, path, Some(other)).status(), StatusCode::OK);
    }
    let document = api.document(&router);
    assert_eq!(document["paths"].as_object().unwrap().len(), 1);
    assert!(matches!(
        router.find(&Method::GET, "/docs/other"),
        Lookup::NotFound
    ));
    assert!(matches!(
        api.mount(router),
        Err(Error::RouteConflict { .. })
    ));
}

#[test]
fn the_page_names_no_other_host() {
    for text in [
        include_str!("docs/page.html"),
        include_str!("docs/page.css"),
        include_str!("docs/page.js"),
    ] {
        assert!(!text.contains("//cdn") && !text.contains("https:") && !text.contains("http:"));
        assert!(!text.contains("innerHTML") && !text.contains("eval("));
    }
}
