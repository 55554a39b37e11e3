//! Tables for people: a heading and aligned columns, without lines, so that they can be copied and cut.

/// Something that is a line of a table.
pub(crate) trait Row {
    const HEADING: &'static str;
    const TITLES: &'static [&'static str];

    /// As many as there are titles.
    fn cells(&self) -> Vec<String>;
}

/// All of them below their titles.
pub(crate) fn of<R: Row>(rows: &[R]) -> String {
    table(R::HEADING, R::TITLES, rows.iter().map(Row::cells).collect())
}

/// `titles` over `rows`; `none` where there are none.
pub(crate) fn table(heading: &str, titles: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return format!("{heading}: none");
    }
    let titles = titles.iter().map(|title| (*title).to_owned()).collect();
    let lines: Vec<Vec<String>> = [vec![titles], rows].concat();
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let line = |cells: &Vec<String>| {
        let padded: Vec<String> = cells
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{cell:width$}", width = width(column).unwrap_or_default()))
            .collect();
        format!("\n  {}", padded.join("  ").trim_end())
    };
    format!("{heading}:{}", lines.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![
            vec!["1".to_owned(), "äöü".to_owned()],
            vec!["1000".to_owned(), String::new()],
        ];
        assert_eq!(
            table("Things", &["ID", "NAME"], rows),
            "Things:\n  ID    NAME\n  1     äöü\n  1000"
        );
        assert_eq!(table("Things", &["ID"], vec![]), "Things: none");
    }
}
