//! Sequences of steps in an input.

/// Iterator over the steps of an input: for each, a byte for its kind, two bytes for the length of
/// its content, and the content. The last one may be cut off.
#[derive(Clone, Debug)]
pub(super) struct Steps<'a>(&'a [u8]);

impl<'a> Steps<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&[kind, length @ ..], rest) = self.0.split_first_chunk::<3>()?;
        let length = usize::from(u16::from_be_bytes(length)).min(rest.len());
        let content;
        (content, self.0) = rest.split_at(length);
        Some((kind, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_read_as_steps_of_which_the_last_may_be_cut_off() {
        let steps: Vec<_> = Steps::new(b"a\0\x02xyb\0\0c\xff\xffz").collect();
        assert_eq!(steps, [(b'a', &b"xy"[..]), (b'b', b""), (b'c', b"z")]);
        assert_eq!(Steps::new(b"a\0").next(), None);
    }
}
