//! The OpenAPI 3.1 document of a router.
//!
//! Guarantees: operation ids are unique; two routes whose paths OpenAPI would
//! call identical share one path item, under the names of the first; what
//! OpenAPI cannot express (custom methods, a second route for the same
//! templated path and method) is listed in `x-other-routes`.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Map, Value, json};

use super::OpenApi;
use super::rebase::{has_local_references, rebase};
use crate::router::{Route, RouteOptions, Router};
use crate::validation::{Schema, parameters};

/// Methods of a route for every method that the document shows.
const SHOWN_FOR_ANY: [Method; 5] = [
    Method::GET,
    Method::PUT,
    Method::POST,
    Method::DELETE,
    Method::PATCH,
];

/// Methods that a path item has a member for.
const KNOWN: [Method; 8] = [
    Method::GET,
    Method::PUT,
    Method::POST,
    Method::DELETE,
    Method::OPTIONS,
    Method::HEAD,
    Method::PATCH,
    Method::TRACE,
];

/// What the document says about a route, so that it can be made later.
pub(super) struct Described {
    method: Option<Method>,
    pattern: String,
    options: RouteOptions,
    body: Option<Schema>,
    query: Option<Schema>,
    answer: Option<Schema>,
}

impl Described {
    /// Every route of `router` that is not hidden.
    pub(super) fn all(router: &Router) -> Vec<Self> {
        let routes = router.table().iter();
        let shown = routes.filter(|route| !route.options().is_hidden);
        shown.map(Self::of).collect()
    }

    fn of(route: &Route) -> Self {
        let contract = route.contract();
        Self {
            method: route.method().cloned(),
            pattern: route.pattern().to_owned(),
            options: *route.options(),
            body: contract.body().cloned(),
            query: contract.query().cloned(),
            answer: contract.answer().cloned(),
        }
    }
}

pub(super) fn build(api: &OpenApi, routes: &[Described]) -> Value {
    let mut builder = Builder::default();
    // A route for one method wins over a route for every method.
    for route in routes {
        match &route.method {
            Some(method) if KNOWN.contains(method) => builder.add(route, method),
            Some(method) => builder.omit(method.as_str(), route),
            None => {}
        }
    }
    for route in routes.iter().filter(|route| route.method.is_none()) {
        for method in &SHOWN_FOR_ANY {
            builder.add(route, method);
        }
    }
    builder.finish(api)
}

#[derive(Default)]
struct Builder {
    paths: Map<String, Value>,
    /// Templates that have been used: without names, and as written.
    templates: Vec<(String, Template)>,
    operation_ids: BTreeSet<String>,
    schemas: Map<String, Value>,
    tags: Vec<&'static str>,
    omitted: Vec<String>,
}

impl Builder {
    fn add(&mut self, route: &Described, method: &Method) {
        let own = Template::new(&route.pattern);
        let key = own.nameless();
        let known = self.templates.iter().find(|(known, _)| *known == key);
        let template = match known {
            Some((_, first)) => first.clone(),
            None => {
                self.templates.push((key, own.clone()));
                own.clone()
            }
        };
        let member = method.as_str().to_ascii_lowercase();
        let item = self.paths.get(&template.text);
        if item.is_some_and(|item| item.get(&member).is_some()) {
            if route.method.is_some() {
                self.omit(method.as_str(), route);
            }
            return;
        }
        let operation = self.operation(route, method, &template, &own);
        let item = self.paths.entry(template.text).or_insert_with(|| json!({}));
        item[member] = operation;
    }

    fn omit(&mut self, method: &str, route: &Described) {
        self.omitted.push(format!("{method} {}", route.pattern));
    }

    fn operation(
        &mut self,
        route: &Described,
        method: &Method,
        template: &Template,
        own: &Template,
    ) -> Value {
        let options = &route.options;
        let id = self.operation_id(options.operation_id, method, &template.text);
        let mut operation = json!({
            "operationId": id,
            "responses": self.responses(route, &id, method, !own.parameters.is_empty()),
        });
        if let Some(summary) = options.summary {
            operation["summary"] = json!(summary);
        }
        if let Some(description) = options.description {
            operation["description"] = json!(description);
        }
        if !options.tags.is_empty() {
            operation["tags"] = json!(options.tags);
            for tag in options.tags {
                if !self.tags.contains(tag) {
                    self.tags.push(tag);
                }
            }
        }
        let mut listed = path_parameters(template, own);
        if let Some(schema) = &route.query {
            listed.extend(self.query_parameters(schema, &id));
        }
        if !listed.is_empty() {
            operation["parameters"] = Value::Array(listed);
        }
        if let Some(body) = self.request_body(route, &id, method) {
            operation["requestBody"] = body;
        }
        operation
    }

    fn operation_id(&mut self, wanted: Option<&str>, method: &Method, path: &str) -> String {
        let base = wanted.map_or_else(
            || format!("{} {path}", method.as_str().to_ascii_lowercase()),
            str::to_owned,
        );
        let base = identifier(&base);
        let mut id = base.clone();
        for number in 2.. {
            if self.operation_ids.insert(id.clone()) {
                break;
            }
            id = format!("{base}_{number}");
        }
        id
    }

    fn request_body(&mut self, route: &Described, id: &str, method: &Method) -> Option<Value> {
        if let Some(schema) = &route.body {
            let reference = self.component(schema, &format!("{id}_body"));
            return Some(json!({
                "required": true,
                "content": {"application/json": {"schema": reference}},
            }));
        }
        let media_types = route.options.body_types;
        if !media_types.is_empty() {
            let content: Map<String, Value> = media_types.iter().map(media_type).collect();
            return Some(json!({"required": true, "content": content}));
        }
        let may_have_one = [Method::POST, Method::PUT, Method::PATCH].contains(method);
        may_have_one.then(|| json!({"content": {"*/*": {}}}))
    }

    fn query_parameters(&mut self, schema: &Schema, id: &str) -> Vec<Value> {
        let mut listed = parameters(schema);
        if listed
            .iter()
            .any(|(.., schema)| has_local_references(schema))
        {
            let reference = self.component(schema, &format!("{id}_query"));
            let base = reference["$ref"].as_str().expect("a reference").to_owned();
            for (_, _, schema) in &mut listed {
                rebase(schema, &base);
            }
        }
        let parameter = |(name, is_required, mut schema): (String, bool, Value)| {
            let members = schema.as_object_mut();
            let description = members.and_then(|members| members.remove("description"));
            let mut parameter =
                json!({"name": name, "in": "query", "required": is_required, "schema": schema});
            if let Some(description) = description {
                parameter["description"] = description;
            }
            parameter
        };
        listed.into_iter().map(parameter).collect()
    }

    fn responses(
        &mut self,
        route: &Described,
        id: &str,
        method: &Method,
        has_parameters: bool,
    ) -> Value {
        let mut success = json!({"description": "Success"});
        if let Some(schema) = &route.answer {
            let reference = self.component(schema, &format!("{id}_answer"));
            success["content"] = json!({"application/json": {"schema": reference}});
        }
        let mut responses = json!({
            "200": success,
            "400": problem("BadRequest"),
            "405": problem("MethodNotAllowed"),
            "default": problem("Other"),
        });
        if has_parameters {
            responses["404"] = problem("NotFound");
        }
        if route.body.is_some() || [Method::POST, Method::PUT, Method::PATCH].contains(method) {
            responses["413"] = problem("PayloadTooLarge");
        }
        if route.body.is_some() {
            responses["415"] = problem("UnsupportedMediaType");
        }
        if route.body.is_some() || route.query.is_some() {
            responses["422"] = problem("Invalid");
        }
        responses
    }

    /// Stores a schema once, and answers a reference to it.
    fn component(&mut self, schema: &Schema, fallback: &str) -> Value {
        for (uri, document) in schema.resources() {
            self.resource(uri, document);
        }
        let title = schema.document().get("title").and_then(Value::as_str);
        let name = title.map(identifier).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| fallback.to_owned());
        self.store(&name, schema.document())
    }

    fn resource(&mut self, uri: &str, document: &Value) {
        let mut document = document.clone();
        if let Some(members) = document.as_object_mut() {
            members.entry("$id").or_insert_with(|| json!(uri));
            let last = uri.rsplit('/').next().unwrap_or(uri);
            self.store(&identifier(last), &document);
        }
    }

    fn store(&mut self, name: &str, document: &Value) -> Value {
        let mut unique = name.to_owned();
        for number in 2.. {
            let base = format!("#/components/schemas/{unique}");
            let mut moved = document.clone();
            rebase(&mut moved, &base);
            if let Some(members) = moved.as_object_mut()
                && members.get("$schema") == Some(&json!(DIALECT))
            {
                members.remove("$schema");
            }
            let is_reserved = ["Problem", "ValidationProblem"].contains(&&*unique);
            let stored = self.schemas.entry(unique).or_insert_with(|| moved.clone());
            if *stored == moved && !is_reserved {
                return json!({"$ref": base});
            }
            unique = format!("{name}_{number}");
        }
        unreachable!("there are more numbers than schemas")
    }

    fn finish(self, api: &OpenApi) -> Value {
        let mut schemas = self.schemas;
        schemas.insert("Problem".to_owned(), problem_schema());
        schemas.insert("ValidationProblem".to_owned(), validation_problem_schema());
        let mut document = json!({
            "openapi": "3.1.1",
            "info": {"title": api.title, "version": api.version},
            "paths": self.paths,
            "components": {"schemas": schemas, "responses": problem_responses()},
        });
        if let Some(description) = &api.description {
            document["info"]["description"] = json!(description);
        }
        if !api.servers.is_empty() {
            let servers = api.servers.iter();
            document["servers"] = servers
                .map(|(url, description)| json!({"url": url, "description": description}))
                .collect();
        }
        if !self.tags.is_empty() {
            document["tags"] = self.tags.iter().map(|name| json!({"name": name})).collect();
        }
        if !self.omitted.is_empty() {
            document["x-other-routes"] = json!(self.omitted);
        }
        document
    }
}

/// The dialect that OpenAPI 3.1 has anyway.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A path as OpenAPI writes it.
#[derive(Debug, Clone)]
struct Template {
    text: String,
    /// Names and types of the parameters; the type `path` is a catch-all.
    parameters: Vec<(String, String)>,
}

impl Template {
    /// `pattern` has been parsed by the router.
    fn new(pattern: &str) -> Self {
        let mut parameters = Vec::new();
        let mut text = String::new();
        for segment in pattern.split('/').skip(1) {
            let inner = segment
                .strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'));
            text.push('/');
            let Some(inner) = inner else {
                text += segment;
                continue;
            };
            let (name, kind) = match inner.strip_prefix('*') {
                Some(name) => (name, "path"),
                None => inner.split_once(':').unwrap_or((inner, "str")),
            };
            text.push('{');
            text += name;
            text.push('}');
            parameters.push((name.to_owned(), kind.to_owned()));
        }
        Self { text, parameters }
    }

    /// Equal for paths that OpenAPI calls identical.
    fn nameless(&self) -> String {
        let segments = self.text.split('/');
        let nameless = segments.map(|segment| {
            if segment.starts_with('{') {
                "{}"
            } else {
                segment
            }
        });
        nameless.collect::<Vec<_>>().join("/")
    }
}

/// A media type without a schema; forms are objects in OpenAPI, and the name
/// of a part stands in a header field, which has no control characters.
fn media_type(name: &&str) -> (String, Value) {
    let described = match *name {
        "application/x-www-form-urlencoded" => json!({"schema": {"type": "object"}}),
        "multipart/form-data" => {
            let names = json!({"pattern": "^[^\\u0000-\\u001f\\u007f]*$"});
            json!({"schema": {"type": "object", "propertyNames": names}})
        }
        _ => json!({}),
    };
    ((*name).to_owned(), described)
}

/// Named as in `template`, typed as in `own`.
fn path_parameters(template: &Template, own: &Template) -> Vec<Value> {
    let pairs = template.parameters.iter().zip(&own.parameters);
    pairs
        .map(|((name, _), (_, kind))| {
            let schema = match kind.as_str() {
                "int" => json!({"type": "integer", "format": "int64"}),
                "uint" => json!({"type": "integer", "minimum": 0}),
                "float" => json!({"type": "number", "format": "double"}),
                "uuid" => json!({"type": "string", "format": "uuid"}),
                _ => json!({"type": "string", "minLength": 1}),
            };
            let mut parameter =
                json!({"name": name, "in": "path", "required": true, "schema": schema});
            if kind == "path" {
                parameter["description"] = json!("The rest of the path; it may have slashes.");
                parameter["x-catch-all"] = json!(true);
            }
            parameter
        })
        .collect()
}

/// Letters, digits and single underscores.
fn identifier(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let words = text.split(|c| !is_word(c)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

fn problem(name: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{name}")})
}

fn problem_responses() -> Value {
    let response = |description: &str, schema: &str| {
        let reference = format!("#/components/schemas/{schema}");
        json!({
            "description": description,
            "content": {"application/problem+json": {"schema": {"$ref": reference}}},
        })
    };
    let mut not_allowed = response("The path does not answer this method.", "Problem");
    not_allowed["headers"] = json!({
        "Allow": {"description": "Methods that the path answers", "schema": {"type": "string"}},
    });
    json!({
        "BadRequest": response("The request is malformed: its framing, path, query or JSON.", "ValidationProblem"),
        "NotFound": response("Nothing is at this path.", "Problem"),
        "MethodNotAllowed": not_allowed,
        "PayloadTooLarge": response("The body is larger than the route accepts.", "Problem"),
        "UnsupportedMediaType": response("The body is not declared as JSON.", "Problem"),
        "Invalid": response("The body or the query does not match its schema.", "ValidationProblem"),
        "Other": response("Any other refusal or failure.", "Problem"),
    })
}

/// RFC 9457, with the extension members of a limit.
fn problem_schema() -> Value {
    json!({
        "type": "object",
        "description": "A problem document (RFC 9457).",
        "required": ["type", "title", "status"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "limit": {"type": "string", "description": "Name of the limit that was exceeded"},
            "limit_value": {"type": "integer"},
        },
    })
}

fn validation_problem_schema() -> Value {
    json!({
        "description": "A problem document that says where the request is wrong.",
        "allOf": [{"$ref": "#/components/schemas/Problem"}],
        "properties": {
            "line": {"type": "integer", "minimum": 1, "description": "Line where the JSON breaks"},
            "column": {"type": "integer", "minimum": 0},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["in", "instance_path", "schema_path", "message"],
                    "properties": {
                        "in": {"enum": ["query", "body"]},
                        "instance_path": {"type": "string", "description": "JSON pointer to the value"},
                        "schema_path": {"type": "string", "description": "JSON pointer to the rule"},
                        "message": {"type": "string"},
                    },
                },
            },
            "num_more_errors": {"type": "integer", "minimum": 1, "description": "Errors beyond those listed"},
        },
    })
}
