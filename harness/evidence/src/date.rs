//! Dates from nanosecond stamps, in UTC.

use proofhouse_schema::units::Wide;

/// Year, month, day, hour, minute, second.
fn civil(stamp: Wide) -> (i64, u64, u64, u64, u64, u64) {
    let seconds = stamp.0 / 1_000_000_000;
    let days = (seconds / 86_400) as i64;
    let rest = seconds % 86_400;
    // Days are counted in eras of 400 years that begin on March 1, so that the leap day is a year's last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097) as u64;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era as i64 + era * 400 + i64::from(month <= 2);
    (year, month, day, rest / 3_600, rest / 60 % 60, rest % 60)
}

/// `2026-12-01`.
#[must_use]
pub fn utc_date(stamp: Wide) -> String {
    let (year, month, day, ..) = civil(stamp);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `2026-12-01T01:02:03Z`.
#[must_use]
pub fn utc_rfc3339(stamp: Wide) -> String {
    let (year, month, day, hour, minute, second) = civil(stamp);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `20261201t010203-123456`: sorts by time and is a valid part of a writer id.
#[must_use]
pub fn utc_stamp(stamp: Wide) -> String {
    let (year, month, day, hour, minute, second) = civil(stamp);
    let micros = stamp.0 / 1_000 % 1_000_000;
    format!("{year:04}{month:02}{day:02}t{hour:02}{minute:02}{second:02}-{micros:06}")
}

/// The host's clock, nanoseconds since 1970.
#[must_use]
pub fn now() -> Wide {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Wide(since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_stamps_have_known_dates() {
        let at = |seconds: u64| utc_rfc3339(Wide(seconds * 1_000_000_000));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(utc_stamp(Wide(1_709_251_199_000_012_000)), "20240229t235959-000012");
    }
}
