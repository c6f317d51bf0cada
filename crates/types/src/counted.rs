/// A number and the noun that it counts, for people: `1 file`, `2 files`, `0 entries`.
pub fn counted(number: impl Into<u64>, one: &str) -> String {
    let number = number.into();
    match one.strip_suffix('y') {
        _ if number == 1 => format!("1 {one}"),
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_agrees_with_its_number() {
        assert_eq!(counted(0u64, "file"), "0 files");
        assert_eq!(counted(1u32, "directory"), "1 directory");
        assert_eq!(counted(2u64, "directory"), "2 directories");
    }
}
