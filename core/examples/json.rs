//! JSON in, JSON out, typed path parameters, and 4xx problem documents.

use justapi_core::{BodyError, Error, Json, Problem, Request, Router, Server, StatusCode};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Item {
    name: String,
    price_cents: u64,
}

async fn create(request: Request) -> Result<Json<Item>, BodyError> {
    let mut item: Item = request.json().await?;
    item.name.make_ascii_lowercase();
    Ok(Json(item))
}

async fn read(request: Request) -> Result<Json<Item>, Problem> {
    match request.param("id") {
        Some("1") => Ok(Json(Item {
            name: "tea".into(),
            price_cents: 450,
        })),
        _ => Err(Problem::new(StatusCode::NOT_FOUND).with_detail("there is only item 1")),
    }
}

fn main() -> Result<(), Error> {
    let router = Router::new()
        .post("/items", create)?
        .get("/items/{id:uint}", read)?;
    Server::new(router).run()
}
