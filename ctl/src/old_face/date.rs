//! Now, as the program `date` prints it.

use std::process::{Command, Stdio};

use time::OffsetDateTime;
use time::macros::format_description;

/// Such as `Thu Jan 23 10:00:00 UTC 2025`, in the zone and the language of whoever asks.
pub(super) fn now() -> String {
    // Only the system knows the names of zones. Where it has no such program it has no zones either.
    let asked = Command::new("date").stdin(Stdio::null()).stderr(Stdio::null()).output();
    match asked {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim_end().to_owned(),
        _ => in_utc(OffsetDateTime::now_utc()),
    }
}

fn in_utc(now: OffsetDateTime) -> String {
    let form = format_description!(
        "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] UTC [year]"
    );
    now.format(form).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_machine_without_the_program_uses_the_same_form() {
        assert_eq!(
            in_utc(datetime!(2025-01-23 10:00:00 UTC)),
            "Thu Jan 23 10:00:00 UTC 2025"
        );
        assert_eq!(
            in_utc(datetime!(2025-02-03 01:02:03 UTC)),
            "Mon Feb  3 01:02:03 UTC 2025"
        );
        assert!(now().split_whitespace().count() >= 4);
    }
}
