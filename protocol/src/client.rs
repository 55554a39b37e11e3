//! One typed `send` for every call, over HTTP.

use std::time::Duration;

use crate::developer::{UploadFilesArchive, UploadedFilesArchive};
use crate::error::{ErrorBody, Qualifier};
use crate::{Call, Json};

/// Talks to one installation.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The service answered, and the answer was no.
    #[error("{message} ({qualifier:?}, HTTP {status})")]
    Refused {
        status: u16,
        qualifier: Qualifier,
        message: String,
    },
    /// Nobody answered, or not in time, or not in this protocol.
    #[error("`{url}` did not answer: {cause}")]
    Unreachable { url: String, cause: String },
}

impl CallError {
    /// The status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unreachable { .. } => None,
        }
    }
}

impl Client {
    /// `base` is the public address, such as `http://localhost:8080`.
    pub fn new(base: &str) -> Result<Self, CallError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .no_proxy();
        if base.starts_with("http://") {
            // No certificates are needed, and a bare container has none.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|cause| CallError::Unreachable {
            url: base.to_owned(),
            cause: cause.to_string(),
        })?;
        Ok(Self {
            http,
            base: base.trim_end_matches('/').to_owned(),
            token: None,
        })
    }

    /// The same client, presenting this token from now on.
    pub fn with_token(&self, token: impl Into<String>) -> Self {
        Self {
            token: Some(token.into()),
            ..self.clone()
        }
    }

    /// The token that is presented.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks and waits for the reply, 30 s at most.
    pub async fn send<C: Call>(&self, call: &C) -> Result<C::Reply, CallError> {
        let request = self
            .http
            .post(self.url::<C>())
            .timeout(Duration::from_secs(30))
            .json(call);
        self.exchange::<C>(request).await
    }

    /// Sends an archive of a version's files, ten minutes at most. The body may tell how far it is while it is read.
    pub async fn upload(
        &self,
        call: &UploadFilesArchive,
        archive: reqwest::Body,
        bytes: u64,
    ) -> Result<UploadedFilesArchive, CallError> {
        let file = reqwest::multipart::Part::stream_with_length(archive, bytes).file_name("version.zip");
        let form = reqwest::multipart::Form::new()
            .text("tenant", call.tenant.to_string())
            .text("tenantVersionId", call.version_id.to_string())
            .part("version.zip", file);
        let url = self.url::<UploadFilesArchive>();
        let request = self.http.post(url).timeout(Duration::from_secs(600)).multipart(form);
        self.exchange::<UploadFilesArchive>(request).await
    }

    fn url<C: Call>(&self) -> String {
        format!("{}{}", self.base, C::ROUTE)
    }

    async fn exchange<C: Call>(&self, mut request: reqwest::RequestBuilder) -> Result<C::Reply, CallError> {
        let url = self.url::<C>();
        let unreachable = |cause: &dyn std::error::Error| {
            let mut text = cause.to_string();
            let mut source = cause.source();
            while let Some(deeper) = source {
                text = deeper.to_string();
                source = deeper.source();
            }
            CallError::Unreachable {
                url: url.clone(),
                cause: text,
            }
        };
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|cause| unreachable(&cause))?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|cause| unreachable(&cause))?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&body).map_err(|cause| unreachable(&cause));
        }
        let error = serde_json::from_slice::<ErrorBody>(&body).unwrap_or(ErrorBody {
            qualifier: Qualifier::Unknown,
            message: String::from_utf8_lossy(&body).into_owned(),
        });
        Err(CallError::Refused {
            status,
            qualifier: error.qualifier,
            message: error.message,
        })
    }
}

/// A value as free-form JSON.
pub fn to_json(value: &impl serde::Serialize) -> Json {
    serde_json::value::to_raw_value(value).expect("the value is plain data")
}
