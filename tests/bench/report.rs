//! Figures and how they are shown: a table for people, a line of JSON for programs. The only place that prints.

use std::io::Write as _;

use serde::Serialize;

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    ValueAtMost(f64),
    RatioAtMost(f64),
    RatioAtLeast(f64),
    /// It is told, not judged.
    None,
}

impl Target {
    fn text(self) -> Option<String> {
        match self {
            Self::ValueAtMost(limit) => Some(format!("value <= {limit}")),
            Self::RatioAtMost(limit) => Some(format!("ratio <= {limit}")),
            Self::RatioAtLeast(limit) => Some(format!("ratio >= {limit}")),
            Self::None => None,
        }
    }

    /// Whether it is met; `None` if there is none. A ratio that is missing misses.
    fn is_met(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::ValueAtMost(limit) => Some(value <= limit),
            Self::RatioAtMost(limit) => Some(ratio.is_some_and(|ratio| ratio <= limit)),
            Self::RatioAtLeast(limit) => Some(ratio.is_some_and(|ratio| ratio >= limit)),
            Self::None => None,
        }
    }
}

/// One figure. The order of the fields is that of the JSON, which other programs read.
#[derive(Debug, Serialize)]
struct Figure {
    bench: String,
    figure: String,
    value: f64,
    unit: &'static str,
    reference: Option<String>,
    reference_value: Option<f64>,
    /// The value divided by the reference's.
    ratio: Option<f64>,
    target: Option<String>,
    ok: Option<bool>,
}

pub(crate) struct Report {
    json: bool,
    bench: String,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            bench: String::new(),
            figures: Vec::new(),
        }
    }

    pub(crate) fn begin(&mut self, bench: &str) {
        self.bench = bench.to_owned();
        self.figures.clear();
    }

    /// For people who wait; never among the figures.
    pub(crate) fn say(&self, what: &str) {
        writeln!(std::io::stderr(), "{}: {what}", self.bench).ok();
    }

    /// Adds a figure, with the name and the value of what it is compared to.
    pub(crate) fn add(
        &mut self,
        figure: &str,
        value: f64,
        unit: &'static str,
        reference: Option<(&str, f64)>,
        target: Target,
    ) {
        let (value, reference_value) = (round(value), reference.map(|(_, value)| round(value)));
        let ratio = reference_value
            .filter(|other| *other > 0.0)
            .map(|other| round(value / other));
        let figure = Figure {
            bench: self.bench.clone(),
            figure: figure.to_owned(),
            value,
            unit,
            reference: reference.map(|(name, _)| name.to_owned()),
            reference_value,
            ratio,
            target: target.text(),
            ok: target.is_met(value, ratio),
        };
        if self.json {
            let line = serde_json::to_string(&figure).expect("a figure is plain data");
            writeln!(std::io::stdout(), "{line}").ok();
        }
        self.figures.push(figure);
    }

    pub(crate) fn end(&mut self) {
        if !self.json {
            write!(std::io::stdout(), "\n{}\n", table(&self.figures)).ok();
        }
    }

    pub(crate) fn list(&self, benches: &[(&str, &str)]) {
        for (name, what) in benches {
            writeln!(std::io::stdout(), "{name:12} {what}").ok();
        }
    }

    pub(crate) fn fail(&self, cause: &anyhow::Error) {
        writeln!(std::io::stderr(), "error: {cause:#}").ok();
    }
}

/// The middle one; the mean of the two middle ones if their number is even.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        values[half]
    } else {
        (values[half - 1] + values[half]) / 2.0
    }
}

/// Four digits: more would be noise.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    // Dividing by a power of ten gives the nearest number that prints short; multiplying by its inverse would not.
    if digits >= 0 {
        let scale = 10_f64.powi(digits);
        (value * scale).round() / scale
    } else {
        let scale = 10_f64.powi(-digits);
        (value / scale).round() * scale
    }
}

fn table(figures: &[Figure]) -> String {
    let dash = || "-".to_owned();
    let number = |value: Option<f64>| value.map_or_else(dash, |value| value.to_string());
    let mut rows = vec![
        [
            "figure",
            "value",
            "unit",
            "reference",
            "its value",
            "ratio",
            "target",
            "",
        ]
        .map(str::to_owned),
    ];
    rows.extend(figures.iter().map(|figure| {
        let verdict = figure.ok.map_or("", |ok| if ok { "ok" } else { "missed" });
        [
            figure.figure.clone(),
            figure.value.to_string(),
            figure.unit.to_owned(),
            figure.reference.clone().unwrap_or_else(dash),
            number(figure.reference_value),
            number(figure.ratio),
            figure.target.clone().unwrap_or_else(dash),
            verdict.to_owned(),
        ]
    }));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |row: &[String; 8]| {
        let cells: Vec<_> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_stays_in_the_table_and_an_absent_one_is_not_judged() {
        let mut report = Report::new(false);
        report.begin("x");
        report.add("slow", 50.0, "µs", Some(("nginx", 25.0)), Target::RatioAtMost(1.0));
        report.add("fast", 40.0, "µs", Some(("other", 93.0)), Target::ValueAtMost(45.0));
        report.add(
            "writes",
            60.0,
            "1/s",
            Some(("pgbench", 100.0)),
            Target::RatioAtLeast(0.6),
        );
        report.add("told", 1.0, "ms", None, Target::None);
        let verdicts: Vec<_> = report.figures.iter().map(|figure| figure.ok).collect();
        assert_eq!(verdicts, [Some(false), Some(true), Some(true), None]);
        let table = table(&report.figures);
        assert!(
            table
                .lines()
                .any(|line| line.starts_with("slow") && line.ends_with("missed")),
            "{table}"
        );
    }

    #[test]
    fn a_line_of_json_has_the_promised_fields_in_order() {
        let mut report = Report::new(false);
        report.begin("api");
        report.add(
            "call",
            41.234_56,
            "µs",
            Some(("Nakama", 93.0)),
            Target::ValueAtMost(45.0),
        );
        let line = serde_json::to_string(&report.figures[0]).unwrap();
        let expected = r#"{"bench":"api","figure":"call","value":41.23,"unit":"µs","reference":"Nakama","reference_value":93.0,"ratio":0.4433,"target":"value <= 45","ok":true}"#;
        assert_eq!(line, expected);
    }

    #[test]
    fn medians_and_four_digits() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(
            [0.0, 0.123_456, 12.345_6, 123_456.0].map(round),
            [0.0, 0.123_5, 12.35, 123_500.0]
        );
    }
}
