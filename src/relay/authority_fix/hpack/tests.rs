use proptest::prelude::*;

use super::*;

/// Limit in bytes, which only the block of `a_small_hpack_block_cannot_expand_beyond_the_limit`
/// exceeds.
const MAX_LIST: usize = 1 << 20;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn decode(block: &[u8]) -> Result<Vec<HeaderField>, HpackError> {
    HpackDecoder::new(MAX_LIST).decode(block)
}

/// Decodes the three requests of RFC 7541, C.3 and C.4. The second and the third refer to fields
/// that earlier requests added to the table.
fn expect_three_requests(blocks: [&str; 3]) {
    let mut decoder = HpackDecoder::new(MAX_LIST);
    let common = |scheme, path| {
        vec![
            HeaderField::new(":method", "GET"),
            HeaderField::new(":scheme", scheme),
            HeaderField::new(":path", path),
            HeaderField::new(":authority", "www.example.com"),
        ]
    };
    let mut expected = [common("http", "/"), common("http", "/"), common("https", "/index.html")];
    expected[1].push(HeaderField::new("cache-control", "no-cache"));
    expected[2].push(HeaderField::new("custom-key", "custom-value"));
    for (block, expected) in blocks.into_iter().zip(expected) {
        assert_eq!(decoder.decode(&hex(block)).unwrap(), expected);
    }
}

#[test]
fn the_hpack_decoder_decodes_requests_without_huffman_codes() {
    expect_three_requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn the_hpack_decoder_decodes_requests_with_huffman_codes() {
    expect_three_requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

#[test]
fn a_full_hpack_table_evicts_its_oldest_entry() {
    let mut decoder = HpackDecoder::new(MAX_LIST);
    // The limit is 64 bytes. Of the two fields of 34 bytes each, only the second fits.
    let fields = decoder.decode(&hex("3f21 4001 61 01 31 4001 62 01 32")).unwrap();
    assert_eq!(fields, [HeaderField::new("a", "1"), HeaderField::new("b", "2")]);
    assert_eq!(decoder.decode(&[0xbe]).unwrap(), [HeaderField::new("b", "2")]);
    assert_eq!(decoder.decode(&[0xbf]), Err(HpackError::Index(63)));
}

#[test]
fn invalid_hpack_blocks_are_refused_with_their_error() {
    assert_eq!(decode(&[0x80]), Err(HpackError::Index(0)));
    assert_eq!(decode(&[0xbe]), Err(HpackError::Index(62)), "the dynamic table is empty");
    assert_eq!(decode(&[0xff]), Err(HpackError::CutOff));
    assert_eq!(decode(&hex("ff ff ff ff ff ff 01")), Err(HpackError::Integer));
    assert_eq!(decode(&hex("00 01 61 02 62")), Err(HpackError::CutOff));
    assert_eq!(decode(&hex("3f e2 1f")), Err(HpackError::TableSize(4096)), "4097 is one too many");
    assert_eq!(decode(&hex("82 20")), Err(HpackError::TableSize(4096)), "only before the first field");
    assert_eq!(decode(&hex("00 01 61 82 1f fe")), Err(HpackError::Huffman), "padding with a zero");
    assert_eq!(
        decode(&hex("00 01 61 82 1f ff")),
        Err(HpackError::Huffman),
        "padding of more than seven bits"
    );
    assert_eq!(
        decode(&hex("00 01 61 81 1f")).unwrap(),
        [HeaderField::new("a", "a")],
        "padding of three ones"
    );
    assert_eq!(decode(&hex("00 01 61 84 ff ff ff ff")), Err(HpackError::Huffman), "an end of string");
}

#[test]
fn a_small_hpack_block_cannot_expand_beyond_the_limit() {
    // The table holds an entry of about 4 KiB, to which the block refers 100,000 times.
    let mut decoder = HpackDecoder::new(MAX_LIST);
    let mut block = hex("40 01 61 7f a1 1e");
    block.extend([b'x'; 4000]);
    assert_eq!(decoder.decode(&block).unwrap()[0].value.len(), 4000);
    assert_eq!(decoder.decode(&vec![0xbe; 100_000]), Err(HpackError::TooLarge(MAX_LIST)));
}

proptest! {
    #[test]
    fn hpack_fields_survive_encoding_and_decoding(pairs in prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>(), any::<bool>()), 0..20)) {
        let fields: Vec<HeaderField> = pairs
            .into_iter()
            .map(|(name, value, sensitive)| HeaderField { name: name.into(), value: value.into(), sensitive })
            .collect();
        prop_assert_eq!(decode(&encode(&fields)).unwrap(), fields);
    }

    #[test]
    fn the_hpack_decoder_never_panics(blocks in prop::collection::vec(any::<Vec<u8>>(), 1..8)) {
        let mut decoder = HpackDecoder::new(MAX_LIST);
        for block in blocks {
            let _ = decoder.decode(&block);
        }
    }
}
