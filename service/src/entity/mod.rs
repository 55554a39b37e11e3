//! One file per noun: its rows, operations and SQL.

pub mod account;
pub mod alias;
pub mod api_key;
pub mod audit;
pub mod cell;
pub mod client;
pub mod deployment;
pub mod files;
pub mod local_run;
pub mod page;
pub mod permission;
pub mod pool;
pub mod project;
pub mod quota;
pub mod runtime;
pub mod stage;
pub mod tenant;
pub mod tombstone;
pub mod venue;
pub mod version;

use omgservers_protocol::call::Paging;
use time::OffsetDateTime;

/// So many children of each kind are shown among the details of something; lists show all.
const DETAILS_MAX: u32 = 500;

fn details_page() -> Paging {
    Paging {
        page_size: Some(DETAILS_MAX),
        page_token: None,
    }
}

/// `2025-01-23T10:20:30.123Z`; the fraction is left out when it is zero.
pub fn timestamp(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    let (date, time) = (at.date(), at.time());
    let ms = time.millisecond();
    let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
    format!(
        "{date}T{:02}:{:02}:{:02}{fraction}Z",
        time.hour(),
        time.minute(),
        time.second()
    )
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    #[test]
    fn a_timestamp_has_milliseconds_unless_they_are_zero() {
        assert_eq!(
            super::timestamp(datetime!(2025-01-23 10:20:30.123456 UTC)),
            "2025-01-23T10:20:30.123Z"
        );
        assert_eq!(
            super::timestamp(datetime!(2025-01-03 15:02:03 +14)),
            "2025-01-03T01:02:03Z"
        );
    }
}
