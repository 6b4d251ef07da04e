//! Comparison of the CRI's protocol definitions with a table of the interface.

use std::collections::BTreeSet;

use probeshim::cri::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, MessageOptions,
};

/// Table of every method, field and enum value of the interface, one per line.
const TABLE: &str = include_str!("../../proto/runtime/v1/runtime-v1.tsv");

#[test]
fn the_protocol_definitions_equal_the_table_of_the_cri() {
    let expected: BTreeSet<String> =
        TABLE.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let described = described();
    let missing: Vec<_> = expected.difference(&described).collect();
    let invented: Vec<_> = described.difference(&expected).collect();
    assert!(missing.is_empty() && invented.is_empty(), "missing: {missing:#?}\ninvented: {invented:#?}");
    assert_eq!(expected.len(), 616, "the table lacks a line or repeats one");
}

fn files() -> FileDescriptorSet {
    FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap()
}

/// Returns the compiled definitions in the format of the table.
fn described() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in files().file {
        for service in &file.service {
            for method in &service.method {
                let side =
                    |name: &str, stream| format!("{}{}", if stream { "stream " } else { "" }, local(name));
                lines.insert(
                    [
                        "rpc",
                        service.name(),
                        method.name(),
                        &side(method.input_type(), method.client_streaming()),
                        &side(method.output_type(), method.server_streaming()),
                    ]
                    .join("\t"),
                );
            }
        }
        for message in &file.message_type {
            describe_message(message, &mut lines);
        }
        for values in &file.enum_type {
            describe_enum(values.name(), values, &mut lines);
        }
    }
    lines
}

fn describe_message(message: &DescriptorProto, lines: &mut BTreeSet<String>) {
    let name = message.name();
    if message.field.is_empty() {
        lines.insert(format!("field\t{name}\t-\t-\t(empty)"));
    }
    for field in &message.field {
        let kind = kind(message, field);
        lines.insert(format!("field\t{name}\t{}\t{}\t{kind}", field.number(), field.name()));
    }
    for values in &message.enum_type {
        describe_enum(&format!("{name}.{}", values.name()), values, lines);
    }
}

fn describe_enum(name: &str, values: &EnumDescriptorProto, lines: &mut BTreeSet<String>) {
    for value in &values.value {
        lines.insert(format!("enum\t{name}\t{}\t{}", value.number(), value.name()));
    }
}

fn kind(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let entry = message.nested_type.iter().find(|nested| {
        nested.options.as_ref().is_some_and(MessageOptions::map_entry)
            && field.type_name().ends_with(&format!(".{}.{}", message.name(), nested.name()))
    });
    if let Some(entry) = entry {
        return format!("map<{}, {}>", scalar(&entry.field[0]), scalar(&entry.field[1]));
    }
    let repeated = if field.label() == Label::Repeated { "repeated " } else { "" };
    format!("{repeated}{}", scalar(field))
}

fn scalar(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => local(field.type_name()).to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

/// Returns the name of a type without its package.
fn local(name: &str) -> &str {
    name.trim_start_matches(".runtime.v1.")
}
