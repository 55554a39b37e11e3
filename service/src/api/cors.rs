//! Which pages of other sites may call from a browser.

use std::str::FromStr;
use std::time::Duration;

use axum::http::HeaderValue;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, Any, CorsLayer};

/// Browsers ask again after this time.
const ASKED_EVERY: Duration = Duration::from_secs(3_600);

/// Sites such as `https://play.example`, separated by commas; `*` is every site, nothing is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    Any,
    These(Vec<HeaderValue>),
}

impl FromStr for Origins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "*" {
            return Ok(Self::Any);
        }
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let origins = items.map(|item| {
            let wrong = || format!("`{item}` is no origin such as `https://play.example`");
            let place = ["https://", "http://"]
                .iter()
                .find_map(|scheme| item.strip_prefix(scheme));
            let is_origin = place.is_some_and(|place| !place.is_empty() && !place.contains(['/', '*', '?', '#', '@']));
            if !is_origin {
                return Err(wrong());
            }
            // Browsers send it in lower case.
            HeaderValue::from_str(&item.to_ascii_lowercase()).map_err(|_| wrong())
        });
        origins.collect::<Result<_, _>>().map(Self::These)
    }
}

/// Without credentials: tokens are in a header of their own, and no cookie of ours is worth a stranger's page.
pub(super) fn layer(origins: &Origins) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(match origins {
            Origins::Any => AllowOrigin::any(),
            Origins::These(list) => AllowOrigin::list(list.iter().cloned()),
        })
        .allow_methods(AllowMethods::mirror_request())
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(Any)
        .max_age(ASKED_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_sites_and_a_bad_one_is_named() {
        assert_eq!("*".parse(), Ok(Origins::Any));
        assert_eq!("".parse(), Ok(Origins::These(Vec::new())));
        let two = ["https://play.example", "http://localhost:3000"].map(HeaderValue::from_static);
        assert_eq!(
            "https://Play.example, http://localhost:3000".parse(),
            Ok(Origins::These(two.to_vec()))
        );
        for bad in [
            "play.example",
            "https://",
            "https://a/b",
            "https://*.example",
            "*,https://a",
        ] {
            let first = bad.split(',').next().unwrap();
            assert!(bad.parse::<Origins>().unwrap_err().contains(first), "{bad}");
        }
    }
}
