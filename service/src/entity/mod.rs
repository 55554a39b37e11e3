//! One file per noun: its rows, operations and SQL.

pub mod account;
pub mod alias;
pub mod cell;
pub mod client;
pub mod deployment;
pub mod pool;
pub mod runtime;
pub mod tenant;
pub mod version;

use time::OffsetDateTime;

/// `2025-01-23T10:20:30.123Z`; the fraction is left out when it is zero.
pub fn timestamp(at: OffsetDateTime) -> String {
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
            super::timestamp(datetime!(2025-01-03 01:02:03 UTC)),
            "2025-01-03T01:02:03Z"
        );
    }
}
