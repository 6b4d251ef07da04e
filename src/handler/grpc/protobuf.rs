//! Fields of protobuf messages. As in Go, a field of another type than the message's own is an
//! unknown one, and no error.

/// Maximum depth of groups.
const MAX_DEPTH: usize = 100;

/// Maximum number of bytes of a varint.
const MAX_VARINT: usize = 10;

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A fixed number or a group, which no message of the health service has.
    Other,
}

/// Returns the fields of a message; `None` if it is invalid.
pub(super) fn fields(message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let (mut left, mut found) = (message, Vec::new());
    while !left.is_empty() {
        found.push(field(&mut left)?);
    }
    Some(found)
}

fn field<'a>(left: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(left)?;
    let value = match tag & 7 {
        0 => Value::Varint(varint(left)?),
        1 => skipped(left, 8)?,
        2 => {
            let length = usize::try_from(varint(left)?).ok()?;
            Value::Bytes(take(left, length)?)
        }
        3 => {
            skip_group(left, tag >> 3)?;
            Value::Other
        }
        5 => skipped(left, 4)?,
        _ => return None,
    };
    is_number(tag >> 3).then_some((tag >> 3, value))
}

/// Skips the fields of a group, up to its end.
fn skip_group(left: &mut &[u8], number: u64) -> Option<()> {
    let mut open = vec![number];
    while let Some(innermost) = open.last().copied() {
        if open.len() > MAX_DEPTH {
            return None;
        }
        let mut after = *left;
        let tag = varint(&mut after)?;
        match tag & 7 {
            3 => {
                *left = after;
                open.push(tag >> 3);
            }
            4 if tag >> 3 == innermost => {
                *left = after;
                open.pop();
            }
            _ => {
                field(left)?;
            }
        }
    }
    Some(())
}

fn is_number(number: u64) -> bool {
    (1..1 << 29).contains(&number)
}

fn skipped<'a>(left: &mut &'a [u8], count: usize) -> Option<Value<'a>> {
    take(left, count).map(|_| Value::Other)
}

fn take<'a>(left: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = left.split_at_checked(count)?;
    *left = rest;
    Some(taken)
}

fn varint(left: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..MAX_VARINT {
        let (byte, rest) = left.split_first()?;
        *left = rest;
        // The last byte has one bit.
        if place == MAX_VARINT - 1 && *byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_of_all_types_are_read() {
        let message = [
            8, 1, 0x12, 2, b'o', b'k', 0x19, 0, 0, 0, 0, 0, 0, 0, 0, 0x25, 0, 0, 0, 0, 0x2b, 8, 1, 0x2c, 8, 2,
        ];
        let expected = vec![
            (1, Value::Varint(1)),
            (2, Value::Bytes(b"ok")),
            (3, Value::Other),
            (4, Value::Other),
            (5, Value::Other),
            (1, Value::Varint(2)),
        ];
        assert_eq!(fields(&message), Some(expected));
    }

    #[test]
    fn invalid_messages_are_refused() {
        for message in [
            &[8][..],
            &[8, 0x80],
            &[0, 1],
            &[0x12, 5, b'o'],
            &[0x0e, 0],
            &[0x0c],
            &[0x0b, 8, 1],
            &[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert_eq!(fields(message), None, "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn no_message_panics(message in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = fields(&message);
        }
    }
}
