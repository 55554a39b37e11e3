//! Where a call comes from: the other end of its connection, or what a proxy says that we trust.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::App;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Proxies whose `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies(Vec<IpNet>);

impl Proxies {
    pub fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Addresses and networks, separated by commas. Nothing: no proxy is trusted.
impl FromStr for Proxies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let networks = items.map(|item| {
            let network = item.parse().or_else(|_| item.parse::<IpAddr>().map(IpNet::from));
            network.map_err(|_| format!("`{item}` is neither an address nor a network such as `10.0.0.0/8`"))
        });
        networks.collect::<Result<_, _>>().map(Self)
    }
}

/// Whom a call is counted for. Of IPv6 the network of one household or machine: everybody has a whole one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address(IpAddr);

impl Address {
    /// Of a request that came over a connection of ours.
    pub fn of(extensions: &Extensions, headers: &HeaderMap, proxies: &Proxies) -> Self {
        let peer = extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |info| info.0.ip().to_canonical());
        Self::new(behind(peer, headers, proxies))
    }

    pub(crate) fn new(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self(address),
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Self(Ipv6Addr::from(network).into())
            }
        }
    }
}

impl FromRequestParts<App> for Address {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&parts.extensions, &parts.headers, &app.config.trusted_proxies))
    }
}

/// The last address on the way to us that is not a trusted proxy. What stands before it may be invented.
fn behind(peer: IpAddr, headers: &HeaderMap, proxies: &Proxies) -> IpAddr {
    let values = headers.get_all(FORWARDED_FOR).iter().rev();
    let mut hops = values.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
    let mut address = peer;
    while proxies.trust(address)
        && let Some(before) = hops.next().and_then(parse)
    {
        address = before;
    }
    address
}

/// An address, also one with a port.
fn parse(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let address = text
        .parse()
        .or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(proxies: &str, peer: &str, forwarded: &[&'static str], expected: &str) {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_static(value));
        }
        let mut extensions = Extensions::new();
        extensions.insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
        let found = Address::of(&extensions, &headers, &proxies.parse().unwrap());
        assert_eq!(
            found.0,
            expected.parse::<IpAddr>().unwrap(),
            "{proxies} {peer} {forwarded:?}"
        );
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let loopback = "127.0.0.0/8,::1";
        check(loopback, "9.9.9.9", &["1.1.1.1"], "9.9.9.9");
        check(loopback, "127.0.0.1", &["1.1.1.1"], "1.1.1.1");
        check(loopback, "127.0.0.1", &["6.6.6.6, 1.1.1.1"], "1.1.1.1");
        check(loopback, "127.0.0.1", &["6.6.6.6", "1.1.1.1, 127.0.0.9"], "1.1.1.1");
        check(loopback, "127.0.0.1", &[], "127.0.0.1");
        check(loopback, "127.0.0.1", &["nonsense"], "127.0.0.1");
        check(loopback, "127.0.0.1", &["1.1.1.1, nonsense"], "127.0.0.1");
        check(loopback, "127.0.0.1", &["1.1.1.1:99"], "1.1.1.1");
        check(loopback, "::ffff:127.0.0.1", &["::ffff:1.1.1.1"], "1.1.1.1");
        check("10.0.0.0/8", "10.0.0.1", &["1.1.1.1, 10.0.0.2"], "1.1.1.1");
        check("", "127.0.0.1", &["1.1.1.1"], "127.0.0.1");
    }

    #[test]
    fn everybody_with_an_ipv6_network_is_one() {
        check("", "2001:db8:1:2:3:4:5:6", &[], "2001:db8:1:2::");
    }

    #[test]
    fn a_bad_proxy_is_named() {
        for bad in ["10.0.0.0/8,nonsense", "10.0.0.0/99"] {
            assert!(
                bad.parse::<Proxies>()
                    .unwrap_err()
                    .contains(bad.rsplit(',').next().unwrap())
            );
        }
    }
}
