//! NaN and infinities, for which JSON has no numbers: everywhere the tagged form that records have.

use proofhouse_schema::real::Real;
use serde_json::Value;

/// A number, or `{"real": "nan"}`, `{"real": "inf"}`, `{"real": "-inf"}`.
pub(crate) fn real(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or_else(|| tagged(value), Value::Number)
}

fn tagged(value: f64) -> Value {
    // A tag is an object of one text, which has a JSON form.
    serde_json::to_value(Real(value)).unwrap_or(Value::Null)
}

/// The word in a tag, where a value is one.
pub(crate) fn word(value: &Value) -> Option<&str> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.get("real")?.as_str().filter(|word| ["nan", "inf", "-inf"].contains(word))
}

/// Reads JSON as DuckDB writes nested values: with bare words for NaN and infinities, which become tags.
pub(crate) fn nested(text: &[u8]) -> Option<Value> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let length = match text[at] {
            b'"' => string(&text[at..]),
            b'-' | b'a'..=b'z' | b'A'..=b'Z' => token(&text[at..]),
            _ => 1,
        };
        let piece = &text[at..at + length];
        match bare(piece) {
            Some(value) => out.extend_from_slice(tagged(value).to_string().as_bytes()),
            None => out.extend_from_slice(piece),
        }
        at += length;
    }
    serde_json::from_slice(&out).ok()
}

/// The length of a string with its quotes; of the rest where it does not end.
fn string(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// The length of a word with the sign before it; one for a sign before digits.
fn token(text: &[u8]) -> usize {
    let signed = usize::from(text[0] == b'-');
    let letters = text[signed..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    (signed + letters).max(1)
}

fn bare(piece: &[u8]) -> Option<f64> {
    let word = std::str::from_utf8(piece).ok()?.to_ascii_lowercase();
    match word.as_str() {
        "nan" | "-nan" => Some(f64::NAN),
        "inf" | "infinity" => Some(f64::INFINITY),
        "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tag(word: &str) -> Value {
        json!({ "real": word })
    }

    #[test]
    fn what_is_no_number_is_tagged_and_its_word_is_found_again() {
        for (value, said) in
            [(f64::NAN, "nan"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")]
        {
            assert_eq!(real(value), tag(said));
            assert_eq!(word(&real(value)), Some(said));
        }
        assert_eq!(real(1.5), json!(1.5));
        for other in
            [json!({"real": "1"}), json!({"real": "nan", "x": 1}), json!("nan"), json!(null)]
        {
            assert_eq!(word(&other), None, "{other}");
        }
    }

    #[test]
    fn bare_words_become_tags_and_strings_stay() {
        let text = r#"{"a":[1.0,NaN,-Infinity,inf,-2],"nan":"NaN \" inf","t":true,"n":null}"#;
        let expected = json!({
            "a": [1.0, tag("nan"), tag("-inf"), tag("inf"), -2],
            "nan": "NaN \" inf", "t": true, "n": null,
        });
        assert_eq!(nested(text.as_bytes()), Some(expected));
        assert_eq!(nested(b"[1,"), None);
        assert_eq!(nested(br#""open"#), None);
    }
}
