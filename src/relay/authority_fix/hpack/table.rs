//! The static and the dynamic table, to which header blocks refer by index (RFC 7541, section 2.3
//! and appendix A).

use std::collections::VecDeque;

use bytes::Bytes;

use super::{HeaderField, HpackError};

/// The static table. The first entry has index 1.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// Size in bytes with which the dynamic table of HTTP/2 starts. The relay never raises it.
pub(super) const MAX_SIZE: usize = 4096;

/// Fields that the peer added to the dynamic table, newest first.
#[derive(Debug)]
pub(super) struct DynamicTable {
    newest_first: VecDeque<HeaderField>,
    size: usize,
    limit: usize,
}

impl Default for DynamicTable {
    fn default() -> Self {
        Self { newest_first: VecDeque::new(), size: 0, limit: MAX_SIZE }
    }
}

impl DynamicTable {
    /// Returns the field with an index of either table.
    pub(super) fn get(&self, index: usize) -> Result<HeaderField, HpackError> {
        let zero_based = index.checked_sub(1).ok_or(HpackError::Index(index))?;
        if let Some((name, value)) = STATIC.get(zero_based) {
            let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
            return Ok(HeaderField { name: bytes(name), value: bytes(value), sensitive: false });
        }
        self.newest_first.get(zero_based - STATIC.len()).cloned().ok_or(HpackError::Index(index))
    }

    /// Adds a field. Older fields are evicted to make room. A field larger than the table empties
    /// it.
    pub(super) fn insert(&mut self, field: HeaderField) {
        let size = field.size();
        self.shrink_to(self.limit.saturating_sub(size));
        if size <= self.limit {
            self.size += size;
            self.newest_first.push_front(field);
        }
    }

    /// Sets the maximum size of the table in bytes.
    pub(super) fn set_limit(&mut self, limit: usize) -> Result<(), HpackError> {
        if limit > MAX_SIZE {
            return Err(HpackError::TableSize(MAX_SIZE));
        }
        self.limit = limit;
        self.shrink_to(limit);
        Ok(())
    }

    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.newest_first.pop_back() else { return };
            self.size -= oldest.size();
        }
    }
}
