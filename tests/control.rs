//! The control plane as a studio uses it day by day, told call by call.

mod access;
mod running;
mod tenancy;

use harness::Studio;
use omgservers_protocol::Call;
use omgservers_protocol::call::Paging;
use omgservers_protocol::client::{CallError, Client};
use omgservers_protocol::text::Text;

fn text(value: impl ToString) -> Text {
    Text::new(value.to_string()).expect("a short text")
}

/// What a refused call says: status and qualifier as it is written.
async fn refusal<C: Call>(client: &Client, call: &C) -> (u16, String) {
    match client.send(call).await {
        Ok(_) => panic!("{} was not refused", C::ROUTE),
        Err(CallError::Refused { status, qualifier, .. }) => {
            let qualifier = serde_json::to_value(qualifier).expect("a qualifier is a word");
            (status, qualifier.as_str().unwrap_or_default().to_owned())
        }
        Err(cause) => panic!("nobody answered: {cause}"),
    }
}

fn refused(status: u16, qualifier: &str) -> (u16, String) {
    (status, qualifier.to_owned())
}

/// The stage of a studio, as calls name it.
fn place(studio: &Studio) -> (Text, Text, Text) {
    (text(studio.tenant), text(studio.project), text(studio.stage))
}

fn page(size: u32, token: Option<String>) -> Paging {
    Paging {
        page_size: Some(size),
        page_token: token,
    }
}

/// Every item of a list, page by page of this size.
macro_rules! walk {
    ($client:expr, $size:expr, |$paging:ident| $call:expr) => {{
        let mut items = Vec::new();
        let mut token = None;
        loop {
            let $paging = $crate::control::page($size, token);
            let page = $client.send(&$call).await.expect("a page");
            assert!(
                page.items.len() <= $size as usize,
                "a page has the size that was asked for"
            );
            items.extend(page.items);
            token = page.next_page_token;
            if token.is_none() {
                break items;
            }
        }
    }};
}
use walk;

fn in_seconds(seconds: i64) -> String {
    let now = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
    now.format(&time::format_description::well_known::Rfc3339)
        .expect("a time")
}
