//! What becomes of headers when a message is passed on. Pure.

use std::net::IpAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers that concern one connection only.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The same, without names of their own.
const HOP_BY_HOP_OLD: [&str; 2] = ["keep-alive", "proxy-connection"];

/// The protocol that a message wants to switch to.
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| wants).cloned()
}

/// Removes what concerns one connection only.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|item| item.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    for name in HOP_BY_HOP_OLD {
        headers.remove(name);
    }
}

/// Tells the service who asks and by which name. What the other side claims counts only if it is a proxy that we trust.
pub(crate) fn add_forwarded(headers: &mut HeaderMap, address: IpAddr, trusted: bool) {
    const FOR: &str = "x-forwarded-for";
    const PROTO: &str = "x-forwarded-proto";
    const HOST: &str = "x-forwarded-host";
    if !trusted {
        for name in [FOR, PROTO, HOST, "forwarded", "x-real-ip"] {
            headers.remove(name);
        }
    }
    let mut chain: String = headers
        .get_all(FOR)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| [value, ", "])
        .collect();
    chain.push_str(&address.to_string());
    if let Ok(chain) = HeaderValue::from_str(&chain) {
        headers.insert(FOR, chain);
    }
    if !headers.contains_key(PROTO) {
        headers.insert(PROTO, HeaderValue::from_static("http"));
    }
    if !headers.contains_key(HOST)
        && let Some(host) = headers.get(header::HOST).cloned()
    {
        headers.insert(HOST, host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn headers_of_one_connection_stay_there() {
        let mut headers = headers(&[
            ("connection", "keep-alive, X-Secret"),
            ("keep-alive", "timeout=5"),
            ("x-secret", "1"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("authorization", "Bearer x"),
        ]);
        remove_hop_by_hop(&mut headers);
        let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["authorization"]);
    }

    #[test]
    fn a_stranger_cannot_pretend_to_be_somebody_else() {
        let address: IpAddr = "10.0.0.9".parse().unwrap();
        let claimed = [
            ("host", "play.example"),
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil.example"),
        ];
        let mut strange = headers(&claimed);
        add_forwarded(&mut strange, address, false);
        assert_eq!(text(&strange, "x-forwarded-for"), Some("10.0.0.9"));
        assert_eq!(text(&strange, "x-forwarded-proto"), Some("http"));
        assert_eq!(text(&strange, "x-forwarded-host"), Some("play.example"));
        let mut trusted = headers(&claimed);
        add_forwarded(&mut trusted, address, true);
        assert_eq!(text(&trusted, "x-forwarded-for"), Some("1.1.1.1, 10.0.0.9"));
        assert_eq!(text(&trusted, "x-forwarded-proto"), Some("https"));
        assert_eq!(text(&trusted, "x-forwarded-host"), Some("evil.example"));
    }

    #[test]
    fn a_switch_of_protocols_is_wanted_only_if_both_headers_say_so() {
        let both = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        assert_eq!(upgrade_of(&headers(&both)).unwrap(), "websocket");
        assert!(upgrade_of(&headers(&both[..1])).is_none() && upgrade_of(&headers(&both[1..])).is_none());
    }
}
