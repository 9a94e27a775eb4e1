//! `POST /form` of the demo: what a form holds, as JSON.
//!
//! Guarantee: a file is counted and thrown away as it comes: its size costs no
//! memory.

use justapi_core::{Form, FormError, Json, Request, header};
use serde::Serialize;

/// The fields of a form in their order.
#[derive(Serialize)]
pub(crate) struct Fields {
    fields: Vec<Field>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Field {
    Text {
        name: String,
        value: String,
    },
    File {
        name: String,
        filename: String,
        content_type: Option<String>,
        length: u64,
    },
}

/// Reads a form of either type.
pub(crate) async fn form(request: Request) -> Result<Json<Fields>, FormError> {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let is_multipart = content_type.is_some_and(|value| {
        let prefix = value.as_bytes().get(..10);
        prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"multipart/"))
    });
    let fields = if is_multipart {
        multipart(request).await?
    } else {
        texts(&request.form_fields().await?)
    };
    Ok(Json(Fields { fields }))
}

fn texts(form: &Form) -> Vec<Field> {
    form.iter()
        .map(|(name, value)| Field::Text {
            name: name.to_owned(),
            value: value.to_owned(),
        })
        .collect()
}

async fn multipart(request: Request) -> Result<Vec<Field>, FormError> {
    let mut form = request.multipart()?;
    let mut fields = Vec::new();
    while let Some(mut part) = form.next_part().await? {
        let name = part.name().to_owned();
        let Some(filename) = part.file_name().map(str::to_owned) else {
            let value = part.text().await?;
            fields.push(Field::Text { name, value });
            continue;
        };
        let content_type = part.content_type().map(str::to_owned);
        let mut length = 0;
        while let Some(chunk) = part.chunk().await? {
            length += chunk.len() as u64;
        }
        fields.push(Field::File {
            name,
            filename,
            content_type,
            length,
        });
    }
    Ok(fields)
}
