//! The body of a request: JSON, lenient where real clients need it, refused with the right qualifier otherwise.

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use omgservers_protocol::text::TEXT_CONSTRAINT;
use serde::de::DeserializeOwned;

use super::BODY_MAX;
use crate::error::{Error, Result};

/// Lists and objects within each other. Free documents of games are not looked into, but the database and the programs
/// that read them give up at some depth: most at 128.
const DEPTH_MAX: usize = 120;

/// A parsed call.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self> {
        if let Some(kind) = request.headers().get(CONTENT_TYPE) {
            let is_json = kind.to_str().is_ok_and(|kind| {
                let essence = kind.split(';').next().unwrap_or_default().trim();
                essence.eq_ignore_ascii_case("application/json") || essence.ends_with("+json")
            });
            if !is_json {
                return Err(Error::WrongMediaType("application/json"));
            }
        }
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|cause| match cause.status() {
                axum::http::StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge { limit: BODY_MAX },
                _ => Error::WrongRequest("the body could not be read".into()),
            })?;
        parse(&bytes).map(Self)
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let text = bytes.trim_ascii();
    if text.is_empty() || text == b"null" {
        return Err(Error::Invalid("the body is missing".into()));
    }
    // Lua writes an empty table as `[]`.
    let is_empty_array =
        text.len() > 1 && text[0] == b'[' && text[1..text.len() - 1].trim_ascii().is_empty() && text.ends_with(b"]");
    let text = if is_empty_array { b"{}" } else { text };
    if text[0] != b'{' {
        let cause = serde_json::from_slice::<serde::de::IgnoredAny>(text).err();
        let reason = cause.map_or_else(
            || "the body must be a JSON object".to_owned(),
            |cause| cause.to_string(),
        );
        return Err(Error::WrongRequest(reason));
    }
    if is_deeper(text, DEPTH_MAX) {
        return Err(Error::WrongRequest(format!(
            "the body is nested more than {DEPTH_MAX} levels deep"
        )));
    }
    serde_json::from_slice(text).map_err(|cause| {
        let message = cause.to_string();
        let is_constraint = message.starts_with("missing field")
            || message.starts_with("invalid type: null")
            || message.starts_with(TEXT_CONSTRAINT);
        if is_constraint {
            Error::Invalid(message)
        } else {
            Error::WrongRequest(message)
        }
    })
}

/// Whether lists and objects are nested so deep, in whatever may be JSON.
fn is_deeper(text: &[u8], depth_max: usize) -> bool {
    let (mut depth, mut in_string, mut bytes) = (0usize, false, text.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            // Whatever is escaped ends no string.
            b'\\' if in_string => drop(bytes.next()),
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use omgservers_protocol::support::{CreateTenant, CreateTenantPermissions, DeleteTenant};

    use super::*;

    fn check<T: DeserializeOwned>(body: &str, expected: &str) {
        let outcome = match parse::<T>(body.as_bytes()) {
            Ok(_) => "ok",
            Err(Error::Invalid(_)) => "invalid",
            Err(Error::WrongRequest(_)) => "wrong",
            Err(_) => "other",
        };
        assert_eq!(outcome, expected, "{body}");
    }

    #[test]
    fn a_body_is_as_deep_as_its_lists_and_objects_are_nested() {
        for (text, depth) in [
            ("1", 0),
            ("[[1],[2]]", 2),
            (r#"{"a":[{"b":{}}]}"#, 4),
            (r#"["[[[[", "\"[[[[", "\\", [1]]"#, 2),
            ("]]]][", 1),
        ] {
            assert!(!is_deeper(text.as_bytes(), depth), "{text}");
            assert!(depth == 0 || is_deeper(text.as_bytes(), depth - 1), "{text}");
        }
    }

    #[test]
    fn bodies_are_lenient_where_real_clients_need_it_and_strict_elsewhere() {
        check::<CreateTenant>("{}", "ok");
        check::<CreateTenant>("[]", "ok");
        check::<CreateTenant>(" [ ] ", "ok");
        check::<CreateTenant>(r#"{"__object":true}"#, "ok");
        check::<CreateTenant>("", "invalid");
        check::<CreateTenant>("{", "wrong");
        check::<CreateTenant>("[1]", "wrong");
        check::<CreateTenant>("7", "wrong");
        check::<DeleteTenant>(r#"{"tenant":"acme","extra":[{}]}"#, "ok");
        check::<DeleteTenant>(r#"{"tenant":42}"#, "ok");
        check::<DeleteTenant>("{}", "invalid");
        check::<DeleteTenant>(r#"{"tenant":null}"#, "invalid");
        check::<DeleteTenant>(r#"{"tenant":" "}"#, "invalid");
        check::<DeleteTenant>(&format!(r#"{{"tenant":"{}"}}"#, "x".repeat(65)), "invalid");
        check::<DeleteTenant>(r#"{"tenant":[]}"#, "wrong");
        check::<CreateTenantPermissions>(
            r#"{"tenant":"a","user_id":"1","permissions_to_create":["NOPE"]}"#,
            "wrong",
        );
    }
}
