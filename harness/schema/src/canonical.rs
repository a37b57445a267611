//! Canonical bytes (RFC 8785), strict parsing and digests.

use std::collections::HashSet;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The largest integer that a double holds with all its neighbors, 2^53.
const EXACT: u64 = 1 << 53;

/// A sha256 in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(bytes)))
    }

    /// Wraps a finished hash.
    #[must_use]
    pub fn from_hash(hash: [u8; 32]) -> Self {
        Self(hex::encode(hash))
    }

    /// Parses 64 lower-case hex digits.
    ///
    /// # Errors
    /// [`CanonicalError::BadDigest`] otherwise.
    pub fn parse(text: &str) -> Result<Self, CanonicalError> {
        let ok = text.len() == 64
            && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if ok { Ok(Self(text.to_owned())) } else { Err(CanonicalError::BadDigest(text.to_owned())) }
    }

    /// All 64 hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 hex digits, as file names carry them.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Digest::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// What can be wrong with bytes that should be canonical JSON.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// The value has no JSON form.
    #[error("the value cannot be written as JSON")]
    Write(#[source] serde_json::Error),
    /// An integer that a double cannot hold; it must be a string.
    #[error("integer {0} passes 2^53: write it as a string")]
    WideInteger(String),
    /// Not JSON, or a duplicate key.
    #[error("not strict JSON")]
    Parse(#[source] serde_json::Error),
    /// JSON, but not of the expected shape.
    #[error("JSON of an unexpected shape")]
    Shape(#[source] serde_json::Error),
    /// JSON, but the bytes are not its canonical form.
    #[error(
        "the bytes are not the canonical form of their JSON (RFC 8785): the file was edited or rewritten"
    )]
    NotCanonical,
    /// Not 64 lower-case hex digits.
    #[error("{0:?} is not a sha256: expected 64 lower-case hex digits")]
    BadDigest(String),
}

/// The canonical bytes of a value.
///
/// # Errors
/// When the value has no JSON form or holds an integer over 2^53.
pub fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    let value = serde_json::to_value(value).map_err(CanonicalError::Write)?;
    value_to_bytes(&value)
}

/// The canonical bytes of a parsed value.
///
/// # Errors
/// As [`to_bytes`].
pub fn value_to_bytes(value: &Value) -> Result<Vec<u8>, CanonicalError> {
    refuse_wide_integers(value)?;
    serde_json_canonicalizer::to_vec(value).map_err(CanonicalError::Write)
}

/// The sha256 of a value's canonical bytes.
///
/// # Errors
/// As [`to_bytes`].
pub fn digest<T: Serialize>(value: &T) -> Result<Digest, CanonicalError> {
    Ok(Digest::of(&to_bytes(value)?))
}

fn refuse_wide_integers(value: &Value) -> Result<(), CanonicalError> {
    match value {
        Value::Number(n) => {
            let wide = n.as_u64().is_some_and(|v| v > EXACT)
                || n.as_i64().is_some_and(|v| v.unsigned_abs() > EXACT);
            if wide { Err(CanonicalError::WideInteger(n.to_string())) } else { Ok(()) }
        }
        Value::Array(items) => items.iter().try_for_each(refuse_wide_integers),
        Value::Object(map) => map.values().try_for_each(refuse_wide_integers),
        _ => Ok(()),
    }
}

/// Parses JSON and refuses duplicate keys, at any depth, and anything after the value.
///
/// # Errors
/// [`CanonicalError::Parse`].
pub fn parse_value(bytes: &[u8]) -> Result<Value, CanonicalError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut deserializer).map_err(CanonicalError::Parse)?;
    deserializer.end().map_err(CanonicalError::Parse)?;
    Ok(value)
}

/// Parses strictly into a type. The bytes need not be canonical.
///
/// # Errors
/// [`CanonicalError::Parse`] or [`CanonicalError::Shape`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CanonicalError> {
    serde_json::from_value(parse_value(bytes)?).map_err(CanonicalError::Shape)
}

/// Parses a file of canonical bytes and gives its value and its id.
///
/// # Errors
/// Any [`CanonicalError`]; [`CanonicalError::NotCanonical`] when the bytes are not what this crate writes.
pub fn parse_canonical(bytes: &[u8]) -> Result<(Value, Digest), CanonicalError> {
    let mut value = parse_value(bytes)?;
    wide_integers_to_doubles(&mut value);
    if value_to_bytes(&value)? == bytes {
        Ok((value, Digest::of(bytes)))
    } else {
        Err(CanonicalError::NotCanonical)
    }
}

/// The canonical form of a double below 1e21 has no point: an integer over 2^53 is one, for integers are never so wide.
fn wide_integers_to_doubles(value: &mut Value) {
    match value {
        Value::Number(n) => {
            if let Err(CanonicalError::WideInteger(_)) =
                refuse_wide_integers(&Value::from(n.clone()))
                && let Some(double) = n.as_f64().and_then(serde_json::Number::from_f64)
            {
                *n = double;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(wide_integers_to_doubles),
        Value::Object(map) => map.values_mut().for_each(wide_integers_to_doubles),
        _ => {}
    }
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate keys")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Strict)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut seen = HashSet::new();
        let mut map = serde_json::Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(serde::de::Error::custom(format!("duplicate key {key:?}")));
            }
            let value = access.next_value_seed(Strict)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_and_numbers_have_one_form() {
        let bytes = to_bytes(&json!({"b": 1.0, "a": [1e21, 0.1, -0.0], "é": null})).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), r#"{"a":[1e+21,0.1,0],"b":1,"é":null}"#);
    }

    #[test]
    fn duplicate_keys_are_refused_at_any_depth() {
        assert!(matches!(parse_value(br#"{"a":1,"a":1}"#), Err(CanonicalError::Parse(_))));
        assert!(matches!(parse_value(br#"[{"x":{"a":1,"a":2}}]"#), Err(CanonicalError::Parse(_))));
        assert!(parse_value(br#"{"a":{"a":1}}"#).is_ok());
    }

    #[test]
    fn trailing_bytes_are_refused() {
        assert!(parse_value(b"{} {}").is_err());
        assert!(parse_value(b"").is_err());
    }

    #[test]
    fn one_changed_space_is_not_canonical() {
        assert!(parse_canonical(br#"{"a":1}"#).is_ok());
        assert!(matches!(parse_canonical(br#"{"a": 1}"#), Err(CanonicalError::NotCanonical)));
    }

    #[test]
    fn integers_over_2_to_53_must_be_strings() {
        assert!(to_bytes(&json!({"n": EXACT})).is_ok());
        assert!(matches!(to_bytes(&json!({"n": EXACT + 1})), Err(CanonicalError::WideInteger(_))));
    }

    #[test]
    fn a_wide_double_without_a_point_is_read_back() {
        for value in [3e16, -3e16, 1e20, 9_007_199_254_740_994.0] {
            let bytes = to_bytes(&json!({ "n": value })).unwrap();
            let (read, _) = parse_canonical(&bytes).unwrap();
            assert_eq!(read["n"].as_f64(), Some(value));
        }
        // No double is written like this one.
        let odd = br#"{"n":9007199254740993}"#;
        assert!(matches!(parse_canonical(odd), Err(CanonicalError::NotCanonical)));
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        let deep = "[".repeat(100_000);
        assert!(parse_value(deep.as_bytes()).is_err());
    }
}
