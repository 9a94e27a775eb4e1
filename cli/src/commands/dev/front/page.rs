//! What is answered in the application's place: that it does not work, or does
//! not yet.
//!
//! Guarantee: a browser gets a page, a program that asks for JSON a problem
//! document (RFC 9457), everybody else plain text; nothing of it is cached.

use std::path::Path;

use anstream::adapter::strip_str;
use bytes::Bytes;
use justapi_core::header::{ACCEPT, CACHE_CONTROL, RETRY_AFTER};
use justapi_core::{Body, HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::commands::dev::failure::{Failure, Output};
use crate::commands::dev::watch::shown;

const STYLE: &str = include_str!("page.css");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// What a client wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Html,
    Json,
    Text,
}

impl Form {
    /// The best of the forms that a request names; plain text if it names none.
    pub(super) fn wanted(headers: &HeaderMap) -> Self {
        let mut best = (0.0, Self::Text);
        for value in headers.get_all(ACCEPT) {
            for element in value.to_str().unwrap_or_default().split(',') {
                let mut parts = element.split(';').map(str::trim);
                let form = match parts.next().unwrap_or_default() {
                    "text/html" | "application/xhtml+xml" => Self::Html,
                    "text/plain" => Self::Text,
                    name if name == "application/json" || name.ends_with("+json") => Self::Json,
                    _ => continue,
                };
                let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
                let weight: f32 = weight.unwrap_or(1.0);
                if weight > best.0 {
                    best = (weight, form);
                }
            }
        }
        best.1
    }
}

/// Says why nothing serves.
pub(super) fn failed(status: StatusCode, failure: &Failure, root: &Path, form: Form) -> Response {
    let text = match form {
        Form::Html => page(failure, root),
        Form::Text => {
            let details = failure.details(root);
            format!("{}\n{}", failure.what, strip_str(&details))
        }
        Form::Json => json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": failure.summary(),
            "error": failure.json(root),
        })
        .to_string(),
    };
    response(status, text, form)
}

/// Says that nothing serves yet.
pub(super) fn starting(form: Form) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let what = "the application is starting";
    let text = match form {
        Form::Html => document(what, "<h1>The application is starting</h1>"),
        Form::Text => format!("{what}\n"),
        Form::Json => json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": what,
        })
        .to_string(),
    };
    response(status, text, form)
}

fn response(status: StatusCode, text: String, form: Form) -> Response {
    let content_type = match form {
        Form::Html => HTML,
        Form::Json => PROBLEM,
        Form::Text => TEXT,
    };
    Response::with_content(content_type, Body::from(Bytes::from(text)))
        .with_status(status)
        .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .with_header(RETRY_AFTER, HeaderValue::from_static("1"))
}

fn page(failure: &Failure, root: &Path) -> String {
    let mut body = String::new();
    let mut add = |text: &str| body.push_str(text);
    add(&format!("<h1>{}</h1>", escaped(failure.summary())));
    if failure.exception.is_some() {
        add(&format!("<p class=what>{}</p>", escaped(&failure.what)));
    }
    if let Some(place) = failure.place() {
        let file = shown(&place.file, root);
        let function = place.function.as_deref().unwrap_or_default();
        add(&format!(
            "<h2><b>{}</b>:{} <span>{}</span></h2>",
            escaped(&file),
            place.line,
            escaped(function)
        ));
        if !failure.source.is_empty() {
            add("<pre class=source>");
            for (number, text) in &failure.source {
                let class = if *number == place.line {
                    " class=here"
                } else {
                    ""
                };
                add(&format!(
                    "<span{class}><i>{number}</i>{}</span>",
                    escaped(text)
                ));
            }
            add("</pre>");
        }
    }
    if let Some(hint) = &failure.hint {
        add(&format!("<p class=hint>{}</p>", escaped(hint)));
    }
    let own = failure.frames.iter().rev().filter(|frame| frame.is_own);
    let own: Vec<String> = own
        .map(|frame| {
            let file = shown(&frame.file, root);
            let function = frame.function.as_deref().unwrap_or_default();
            format!(
                "<li><b>{}</b>:{} <span>{}</span></li>",
                escaped(&file),
                frame.line,
                escaped(function)
            )
        })
        .collect();
    if own.len() > 1 {
        add(&format!(
            "<h3>Your code, the last call first</h3><ol>{}</ol>",
            own.concat()
        ));
    }
    if let Some(trace) = failure.plain_trace() {
        let heading = match failure.output {
            None => "Traceback",
            Some(Output::Build) => "What the build says",
            Some(Output::Program) => "What the program says",
        };
        add(&format!(
            "<h3>{heading}</h3><pre class=trace>{}</pre>",
            escaped(&trace)
        ));
    }
    add("<p class=note>The page loads anew as soon as the code works again.</p>");
    document(failure.summary(), &body)
}

fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\"><title>{}</title>\
         <style>{STYLE}</style></head><body><main>{body}</main></body></html>\n",
        escaped(title)
    )
}

/// Text as HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_the_form() {
        for (accept, expected) in [
            ("", Form::Text),
            ("*/*", Form::Text),
            ("text/html,application/xml;q=0.9,*/*;q=0.8", Form::Html),
            ("application/json", Form::Json),
            ("application/problem+json", Form::Json),
            ("text/html;q=0.5, application/json", Form::Json),
            ("application/json;q=0.2, text/html;q=0.5", Form::Html),
            ("text/plain, text/html;q=0.9", Form::Text),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().expect("a value"));
            assert_eq!(Form::wanted(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn what_failed_cannot_write_the_page() {
        let failure = Failure::traced("x <script>", "ValueError: <img src=x onerror=\"y\">");
        let page = page(&failure, Path::new("/p"));
        assert!(
            !page.contains("<img") && !page.contains("<script>"),
            "{page}"
        );
        assert!(
            page.contains("&lt;img src=x onerror=&quot;y&quot;&gt;"),
            "{page}"
        );
    }
}
