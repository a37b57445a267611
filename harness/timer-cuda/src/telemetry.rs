//! What was read around each sample, by column.

use proofhouse_schema::device::Telemetry;

use crate::sensors::Reading;

/// What was read after one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// Clock of a multiprocessor in MHz, read by a kernel right after the sample.
    pub sm_mhz: f64,
    /// What the sensors told.
    pub reading: Reading,
}

/// The rows as columns; a column that lacks a value anywhere is left out whole, since a value
/// belongs to its sample by its place.
#[must_use]
pub fn columns(rows: &[Row]) -> Telemetry {
    let column = |value: fn(&Row) -> Option<f64>| -> Vec<f64> {
        rows.iter().map(value).collect::<Option<Vec<_>>>().unwrap_or_default()
    };
    let reasons = rows.iter().map(|row| row.reading.reasons).collect::<Option<Vec<_>>>();
    Telemetry {
        sm_mhz: rows.iter().map(|row| row.sm_mhz).collect(),
        reasons: reasons.unwrap_or_default(),
        power_mw: column(|row| row.reading.power_mw),
        temperature_c: column(|row| row.reading.temperature_c),
        energy_mj: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_with_a_hole_is_left_out_and_the_others_stay() {
        let full = Reading { reasons: Some(4), power_mw: Some(1.0), temperature_c: Some(40.0) };
        let rows = [
            Row { sm_mhz: 1_980.0, reading: full },
            Row { sm_mhz: 1_965.0, reading: Reading { power_mw: None, ..full } },
        ];
        let telemetry = columns(&rows);
        assert_eq!(telemetry.sm_mhz, [1_980.0, 1_965.0]);
        assert_eq!(telemetry.reasons, [4, 4]);
        assert!(telemetry.power_mw.is_empty());
        assert_eq!(telemetry.temperature_c, [40.0; 2]);
        assert!(columns(&[]).is_empty());
    }
}
