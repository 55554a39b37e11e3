//! Tables for people: a heading and aligned columns, without lines, so that they can be copied and cut.

/// `titles` over `rows`; a dash where there are none.
pub(crate) fn table<const N: usize>(heading: &str, titles: [&str; N], rows: Vec<[String; N]>) -> String {
    if rows.is_empty() {
        return format!("{heading}: none");
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([titles[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        format!("  {}", padded.join("  ").trim_end())
    };
    let mut lines = vec![format!("{heading}:"), line(titles)];
    lines.extend(
        rows.iter()
            .map(|row| line(std::array::from_fn(|column| row[column].as_str()))),
    );
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![["1".to_owned(), "äöü".to_owned()], ["1000".to_owned(), String::new()]];
        assert_eq!(
            table("Things", ["ID", "NAME"], rows),
            "Things:\n  ID    NAME\n  1     äöü\n  1000"
        );
        assert_eq!(table("Things", ["ID"], vec![]), "Things: none");
    }
}
