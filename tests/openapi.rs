//! The OpenAPI document is that of the routes: all of them, with what they take, and who is let in.

use std::collections::BTreeSet;

use harness::{Installation, Options};
use serde_json::{Value, json};

use crate::http::{post, send};

/// Every reference in the document.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(reference) if name == "$ref" => {
                        found.insert(reference);
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openapi_document_is_that_of_the_routes() {
    let installation = Installation::start(Options::default()).await;
    let url = format!("{}{}", installation.base, omgservers_service::api::OPENAPI_ROUTE);
    let answer = send(reqwest::Method::GET, &url, None, "application/json", String::new()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let document: Value = serde_json::from_str(&answer.body).expect("it is JSON");
    assert!(
        document["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3."))
    );

    let written: BTreeSet<&str> = document["paths"]
        .as_object()
        .expect("paths")
        .keys()
        .map(String::as_str)
        .collect();
    let real: BTreeSet<&str> = omgservers_service::api::addresses().into_iter().collect();
    assert_eq!(written, real);

    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("a reference into the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }

    // Who needs a token according to the document needs one in truth.
    for route in real {
        let operation = &document["paths"][route]["post"];
        let needs_token = operation.get("security").is_some();
        let answer = post(&format!("{}{route}", installation.base), None, &json!({})).await;
        assert_eq!(answer.status == 401, needs_token, "{route}: {}", answer.body);
        let bodies = operation["requestBody"]["content"].as_object().expect("a body");
        assert_eq!(bodies.len(), 1, "{route}");
    }
    let client = &document["paths"]["/service/v1/entrypoint/player/request/create-client"]["post"];
    let fields = &client["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(fields["required"], json!(["tenant", "project", "stage"]), "{fields}");
    installation.stop().await;
}
