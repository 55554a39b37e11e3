//! How a WebSocket connection begins: where its token may be, which sub-protocol is agreed on, and what a refusal looks
//! like. Pure functions of HTTP headers.

use std::borrow::Cow;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use omgservers_protocol::mux;
use omgservers_protocol::{ErrorBody, Qualifier};

use crate::admission::Refusal;

/// Where players and runtimes connect.
pub(crate) const ENDPOINT: &str = "/dispatcher/v1/entrypoint/websocket/endpoint";

/// The sub-protocol of SDKs that carry their token in the query.
const OMGSERVERS: &str = "omgservers";

/// The sub-protocol of SDKs that carry their token in the next item of the list.
const TOKEN_CARRIER: &str = "bearer-token-carrier";

/// What precedes the token in that item, once decoded.
const CARRIED: &str = "quarkus-http-upgrade#Authorization#Bearer ";

/// The token of a request: in the query, in a header, or among the sub-protocols.
pub(crate) fn find_token<'a>(query: Option<&'a str>, headers: &'a HeaderMap) -> Option<Cow<'a, str>> {
    let in_query = || {
        let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
        let (_, token) = pairs.into_iter().find(|(name, _)| *name == "ws_token")?;
        Some(decode(token))
    };
    let in_header = || {
        let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim().into())
    };
    let in_list = || {
        protocols(headers).find_map(|item| {
            let item = decode(item);
            let token = item.strip_prefix(CARRIED)?.trim();
            Some(token.to_owned().into())
        })
    };
    in_query().or_else(in_header).or_else(in_list)
}

/// What the two sides agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// The binary link was offered.
    pub(crate) mux: bool,
    /// The answer to the offer, if there was one that we know.
    pub(crate) protocol: Option<&'static str>,
}

/// Chooses among the offered sub-protocols. Only runtimes may speak the binary one.
pub(crate) fn agree(headers: &HeaderMap, is_runtime: bool) -> Agreement {
    let offered = |name: &str| protocols(headers).any(|item| item == name);
    let mux = is_runtime && offered(mux::PROTOCOL);
    let protocol = if mux {
        Some(mux::PROTOCOL)
    } else {
        [TOKEN_CARRIER, OMGSERVERS].into_iter().find(|name| offered(name))
    };
    Agreement { mux, protocol }
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Decodes a form-url-encoded value; tokens themselves contain nothing that would change.
fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return text.into();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match byte {
            b'%' => after.first_chunk::<2>().and_then(|[high, low]| {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
            }),
            _ => None,
        };
        match escaped {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &after[2..];
            }
            None => {
                bytes.push(if byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// The answer to a connection that is refused.
pub(crate) fn refuse(refusal: Refusal) -> Response<Full<Bytes>> {
    match refusal {
        Refusal::NotReady => error(
            StatusCode::SERVICE_UNAVAILABLE,
            Qualifier::InternalExceptionOccurred,
            "the dispatcher is not ready",
        ),
        Refusal::NotPermitted(message) => error(StatusCode::FORBIDDEN, Qualifier::PermissionNotFound, message),
        Refusal::WrongCredentials(message) => {
            let mut response = error(StatusCode::UNAUTHORIZED, Qualifier::WrongCredentials, message);
            let headers = response.headers_mut();
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("ws_token"));
            response
        }
    }
}

/// A failure in the form that every client of the service knows.
pub(crate) fn error(status: StatusCode, qualifier: Qualifier, message: &str) -> Response<Full<Bytes>> {
    let body = ErrorBody {
        qualifier,
        message: message.to_owned(),
    };
    let body = serde_json::to_vec(&body).expect("an error is plain data");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Browser builds of games must be able to read why.
    headers.insert("access-control-allow-origin", HeaderValue::from_static("*"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn check_token(query: Option<&str>, pairs: &[(&'static str, &str)], expected: Option<&str>) {
        assert_eq!(
            find_token(query, &headers(pairs)).as_deref(),
            expected,
            "{query:?} {pairs:?}"
        );
    }

    #[test]
    fn a_token_is_found_in_the_query_the_header_and_the_sub_protocols() {
        const PROTOCOLS: &str = "sec-websocket-protocol";
        check_token(Some("ws_token=a.b-c_d"), &[], Some("a.b-c_d"));
        check_token(Some("x=1&ws_token=a.b%2Dc&y"), &[], Some("a.b-c"));
        check_token(Some("xws_token=a"), &[], None);
        check_token(None, &[("authorization", "Bearer a.b")], Some("a.b"));
        check_token(None, &[("authorization", "bearer a.b")], Some("a.b"));
        check_token(None, &[("authorization", "Basic a.b")], None);
        for carried in [
            "bearer-token-carrier,quarkus-http-upgrade%23Authorization%23Bearer+a.b",
            "bearer-token-carrier, quarkus-http-upgrade%23Authorization%23Bearer%20a.b",
            "bearer-token-carrier, quarkus-http-upgrade#Authorization#Bearer a.b",
            "quarkus-http-upgrade%23Authorization%23Bearer%20a.b,omgservers",
        ] {
            check_token(None, &[(PROTOCOLS, carried)], Some("a.b"));
        }
        let two_lines = [
            (PROTOCOLS, "bearer-token-carrier"),
            (PROTOCOLS, "quarkus-http-upgrade#Authorization#Bearer a.b"),
        ];
        check_token(None, &two_lines, Some("a.b"));
        check_token(None, &[(PROTOCOLS, "bearer-token-carrier, %2, %zz, %")], None);
        check_token(
            Some("ws_token=query"),
            &[("authorization", "Bearer header")],
            Some("query"),
        );
    }

    #[test]
    fn the_answer_is_a_sub_protocol_that_was_offered() {
        let cases = [
            ("", true, None, false),
            ("omgservers", false, Some("omgservers"), false),
            ("chat, omgservers", true, Some("omgservers"), false),
            (
                "bearer-token-carrier,quarkus#x",
                false,
                Some("bearer-token-carrier"),
                false,
            ),
            (
                "omgservers,bearer-token-carrier",
                false,
                Some("bearer-token-carrier"),
                false,
            ),
            ("omgservers.mux.v1", true, Some("omgservers.mux.v1"), true),
            (
                "bearer-token-carrier, x, omgservers.mux.v1",
                true,
                Some("omgservers.mux.v1"),
                true,
            ),
            ("omgservers.mux.v1", false, None, false),
            ("omgservers.mux.v1, omgservers", false, Some("omgservers"), false),
        ];
        for (offer, is_runtime, protocol, mux) in cases {
            let agreement = agree(&headers(&[("sec-websocket-protocol", offer)]), is_runtime);
            assert_eq!(agreement, Agreement { mux, protocol }, "{offer}");
        }
    }

    #[test]
    fn refusals_tell_programs_and_people_why() {
        let cases = [
            (Refusal::WrongCredentials("no"), 401, Some("ws_token")),
            (Refusal::NotPermitted("no"), 403, None),
            (Refusal::NotReady, 503, None),
        ];
        for (refusal, status, challenge) in cases {
            let response = refuse(refusal);
            assert_eq!(response.status().as_u16(), status);
            let header = response.headers().get(WWW_AUTHENTICATE);
            assert_eq!(header.map(|value| value.to_str().unwrap()), challenge);
        }
    }
}
