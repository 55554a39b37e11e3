//! Plain requests, for what a typed client would not send.

use std::sync::OnceLock;

use serde_json::Value;

pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Of an error; empty otherwise.
    pub(crate) qualifier: String,
    pub(crate) body: String,
}

fn client() -> &'static reqwest::Client {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        // A connection lives in the runtime of the test that opened it: none is kept.
        reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .pool_max_idle_per_host(0)
            .build()
            .expect("a client")
    })
}

pub(crate) async fn post(url: &str, token: Option<&str>, body: &Value) -> Answer {
    send(reqwest::Method::POST, url, token, "application/json", body.to_string()).await
}

/// Asks somebody who may be killed meanwhile.
pub(crate) async fn try_post(url: &str, token: Option<&str>, body: &Value) -> Option<Answer> {
    try_answer(client().post(url).json(body), token).await.ok()
}

/// The same with a form.
pub(crate) async fn try_post_form(
    url: &str,
    token: Option<&str>,
    fields: &Value,
    file: (&str, Vec<u8>),
) -> reqwest::Result<Answer> {
    try_answer(client().post(url).multipart(form(fields, file)), token).await
}

/// Whatever bytes, as JSON.
pub(crate) async fn try_post_bytes(url: &str, token: Option<&str>, body: Vec<u8>) -> reqwest::Result<Answer> {
    let request = client().post(url).header("content-type", "application/json").body(body);
    try_answer(request, token).await
}

/// A form of these fields and nothing else.
pub(crate) async fn post_fields(url: &str, token: Option<&str>, fields: &[(&str, &str)]) -> Answer {
    let mut form = reqwest::multipart::Form::new();
    for (name, value) in fields {
        form = form.text((*name).to_owned(), (*value).to_owned());
    }
    answer(client().post(url).multipart(form), token).await
}

/// A form with a file, as the upload of an archive wants it.
pub(crate) async fn post_form(url: &str, token: Option<&str>, fields: &Value, file: (&str, Vec<u8>)) -> Answer {
    answer(client().post(url).multipart(form(fields, file)), token).await
}

fn form(fields: &Value, file: (&str, Vec<u8>)) -> reqwest::multipart::Form {
    let mut form = reqwest::multipart::Form::new();
    for (name, value) in fields.as_object().expect("fields with names") {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        form = form.text(name.clone(), text);
    }
    let part = reqwest::multipart::Part::bytes(file.1).file_name("version.zip");
    form.part(file.0.to_owned(), part)
}

pub(crate) async fn send(method: reqwest::Method, url: &str, token: Option<&str>, kind: &str, body: String) -> Answer {
    answer(
        client().request(method, url).header("content-type", kind).body(body),
        token,
    )
    .await
}

async fn answer(request: reqwest::RequestBuilder, token: Option<&str>) -> Answer {
    try_answer(request, token).await.expect("the dispatcher answers")
}

/// What is answered, if the other side lives long enough.
async fn try_answer(mut request: reqwest::RequestBuilder, token: Option<&str>) -> reqwest::Result<Answer> {
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await?;
    let status = response.status().as_u16();
    let body = response.text().await?;
    let qualifier = serde_json::from_str::<Value>(&body)
        .ok()
        .and_then(|value| value.get("qualifier")?.as_str().map(str::to_owned))
        .unwrap_or_default();
    Ok(Answer {
        status,
        qualifier,
        body,
    })
}
