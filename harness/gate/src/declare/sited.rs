//! Values with the place where they were written.

use std::borrow::Cow;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A value and the bytes it was written in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sited<T> {
    /// The value.
    pub value: T,
    /// Its bytes in the file.
    pub span: Range<usize>,
}

impl<T> Sited<T> {
    /// A value with its place.
    pub fn new(value: T, span: Range<usize>) -> Self {
        Self { value, span }
    }
}

/// One value, or a list of them: an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis<T> {
    /// The values in the order they were written.
    pub values: Vec<Sited<T>>,
    /// The whole.
    pub span: Range<usize>,
}

/// A table whose keys are names, in the order they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<T> {
    /// Names and what they name.
    pub entries: Vec<(Sited<String>, T)>,
    /// The whole.
    pub span: Range<usize>,
}

impl<T: JsonSchema> JsonSchema for Sited<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

impl<T: JsonSchema> JsonSchema for Axis<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Axis_of_{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "type": "object", "additionalProperties": value })
    }
}
