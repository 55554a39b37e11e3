//! The way to an installation: one typed `send` for every call. Nothing is sent anywhere but to the address that was
//! chosen, so redirections are told and not followed.

use std::time::Duration;

use reqwest::header::LOCATION;
use reqwest::redirect::Policy;

use crate::developer::{UploadFilesArchive, UploadedFilesArchive};
use crate::error::{ErrorBody, Qualifier};
use crate::{Call, Json};

/// The archive of a version takes longer than a call.
const CALL_WITHIN: Duration = Duration::from_secs(30);
const UPLOAD_WITHIN: Duration = Duration::from_secs(600);

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
    /// Another address answers for it.
    #[error("`{url}` sends callers to `{base}` (HTTP {status})")]
    Moved { status: u16, url: String, base: String },
    /// Somebody answered, but not in the words of OMGSERVERS.
    #[error("`{url}` does not answer as OMGSERVERS does (HTTP {status})")]
    Foreign { status: u16, url: String },
    /// Nobody answered, or not in time.
    #[error("`{url}` did not answer: {cause}")]
    Unreachable { url: String, cause: String },
}

impl CallError {
    /// Of the answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Moved { status, .. } | Self::Foreign { status, .. } => Some(*status),
            Self::Unreachable { .. } => None,
        }
    }
}

impl Client {
    /// `base` is the public address, such as `http://localhost:8080`.
    pub fn new(base: &str) -> Result<Self, CallError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .redirect(Policy::none())
            .no_proxy();
        if base.starts_with("http://") {
            // No certificates are needed, and a bare container has none.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|cause| unreachable(base, &cause))?;
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

    pub async fn send<C: Call>(&self, call: &C) -> Result<C::Reply, CallError> {
        let request = self.http.post(self.url::<C>()).timeout(CALL_WITHIN).json(call);
        self.exchange::<C>(request).await
    }

    /// Sends an archive of a version's files. The body may tell how far it is while it is read.
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
        let request = self.http.post(url).timeout(UPLOAD_WITHIN).multipart(form);
        self.exchange::<UploadFilesArchive>(request).await
    }

    fn url<C: Call>(&self) -> String {
        format!("{}{}", self.base, C::ROUTE)
    }

    async fn exchange<C: Call>(&self, mut request: reqwest::RequestBuilder) -> Result<C::Reply, CallError> {
        let url = self.url::<C>();
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|cause| unreachable(&url, &cause))?;
        let status = response.status().as_u16();
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        if let (300..400, Some(location)) = (status, location) {
            let base = base_of(response.url(), location, C::ROUTE);
            return Err(CallError::Moved { status, url, base });
        }
        let body = response.bytes().await.map_err(|cause| unreachable(&url, &cause))?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&body).map_err(|_| CallError::Foreign { status, url });
        }
        Err(match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(ErrorBody { qualifier, message }) => CallError::Refused {
                status,
                qualifier,
                message,
            },
            Err(_) => CallError::Foreign { status, url },
        })
    }
}

/// The address to use instead: where a caller is sent to, without the call.
fn base_of(from: &reqwest::Url, location: &str, route: &str) -> String {
    match from.join(location) {
        Ok(to) if to.path().ends_with(route) => {
            let end = to.as_str().find(route).unwrap_or(to.as_str().len());
            to.as_str()[..end].to_owned()
        }
        Ok(to) if to.has_host() => to.origin().ascii_serialization(),
        _ => location.to_owned(),
    }
}

/// With the deepest reason: those above it only say that something failed.
fn unreachable(url: &str, cause: &dyn std::error::Error) -> CallError {
    let mut deepest = cause;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    CallError::Unreachable {
        url: url.to_owned(),
        cause: deepest.to_string(),
    }
}

/// A value as free-form JSON.
pub fn to_json(value: &impl serde::Serialize) -> Json {
    serde_json::value::to_raw_value(value).expect("the value is plain data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_to_use_instead_is_told_without_the_call() {
        let route = "/service/v1/entrypoint/admin/request/create-token";
        let check = |location: &str, base: &str| {
            let from = reqwest::Url::parse(&format!("http://games.test:8080{route}")).unwrap();
            assert_eq!(base_of(&from, location, route), base);
        };
        check(&format!("https://games.test{route}"), "https://games.test");
        check(&format!("https://games.test/api{route}"), "https://games.test/api");
        check("https://games.test/login?from=x", "https://games.test");
        check("/elsewhere", "http://games.test:8080");
    }
}
