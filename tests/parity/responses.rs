//! Responses of HTTP/1 servers, hand-written and mutated, for the comparison of their readers.

use std::collections::BTreeSet;

/// Number of mutated responses.
const MUTATIONS: usize = 400;

/// Bytes that mutations insert: separators, line ends, and bytes that no text has.
const INSERTED: [&[u8]; 16] = [
    b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b";", b",", b"\0", b"\x7f", b"\x80", b"\xff", b"0", b"+", b"/",
    b"\"",
];

/// Heads and bodies, each valid or nearly so.
const WRITTEN: &[&str] = &[
    // Status lines.
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.0 200 OK\r\n\r\nok",
    "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 \t200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1\t200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/3.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/0.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/0.9 200 OK\r\n\r\nok",
    "HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/10.1 200 OK\r\n\r\nok",
    "HTTP/1.10 200 OK\r\n\r\nok",
    "HTTP/1.1. 200 OK\r\n\r\nok",
    "HTTP/1.a 200 OK\r\n\r\nok",
    "HTTP/-1.1 200 OK\r\n\r\nok",
    "HTTP 200 OK\r\n\r\nok",
    "http/1.1 200 OK\r\n\r\nok",
    "HTTPS/1.1 200 OK\r\n\r\nok",
    "XHTTP/1.1 200 OK\r\n\r\nok",
    " HTTP/1.1 200 OK\r\n\r\nok",
    "ICY 200 OK\r\n\r\nok",
    "RTSP/1.0 200 OK\r\n\r\nok",
    "\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 20 OK\r\n\r\nok",
    "HTTP/1.1 2000 OK\r\n\r\nok",
    "HTTP/1.1 +20 OK\r\n\r\nok",
    "HTTP/1.1 -20 OK\r\n\r\nok",
    "HTTP/1.1 -00 OK\r\n\r\nok",
    "HTTP/1.1 2_0 OK\r\n\r\nok",
    "HTTP/1.1 0x2 OK\r\n\r\nok",
    "HTTP/1.1 000 OK\r\n\r\nok",
    "HTTP/1.1 099 OK\r\n\r\nok",
    "HTTP/1.1 abc OK\r\n\r\nok",
    "HTTP/1.1 200OK\r\n\r\nok",
    "HTTP/1.1 200\tOK\r\n\r\nok",
    "HTTP/1.1 600 Odd\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 399 Odd\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 caf\u{e9}\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 O\0K\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "HTTP/1.1 200 OK\r\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\rContent-Length: 2\r\n\r\nok",
    "",
    "\r\n",
    "\r\n\r\n",
    "HTTP/1.1",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\nA: b",
    "HTTP/1.1 200 OK\r\nA: b\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r",
    "nonsense",
    "nonsense\r\n\r\n",
    "<html>no head</html>\n",
    "{\"status\": \"UP\"}",
    "SSH-2.0-OpenSSH_9.2\r\n",
    "220 mail ESMTP\r\n",
    "-ERR unknown command\r\n",
    "\u{15}\u{3}\u{1}\0\u{2}\u{2}",
    // Header names and values.
    "HTTP/1.1 200 OK\r\nX-A : x\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nBad Header: x\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length : 3\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX-A\t: x\r\n\r\nok",
    "HTTP/1.1 200 OK\r\n: x\r\n\r\nok",
    "HTTP/1.1 200 OK\r\n : x\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nno colon\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nA: b\r\nno colon\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX(A): x\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX\u{e9}: x\r\n\r\nok",
    "HTTP/1.1 200 OK\r\n\"X\": x\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX@A: x\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX\0A: x\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A: a\u{1}b\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A: a\u{7f}b\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A: a\rb\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A: a\tb\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A: caf\u{e9}\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A:\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A:b\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A:  b  \r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A: b: c\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nx-a: b\r\nX-A: c\r\ncontent-length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\n!#$%&'*+-.^_`|~: x\r\n\r\nok",
    // Lines that continue others.
    "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nX-A: b\r\n\tc\r\n d\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n \r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\n X-A: b\r\n\r\nok",
    "HTTP/1.1 200 OK\r\n\tX-A: b\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nA: b\r\n ",
    "HTTP/1.1 200 OK\r\nX-A\r\n : b\r\n\r\nok",
    // Lengths.
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more",
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
    "HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nshort",
    "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: \r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2.0\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 0002\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length:  2 \r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 02\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nok",
    "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\nzz",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nContent-Length: x\r\n\r\n",
    "HTTP/1.1 205 Reset\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\n\r\nuntil the end",
    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
    "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    // Transfer encodings.
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked \r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding:\tchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked;q=1\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: \"chunked\"\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    "HTTP/0.0 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
    "HTTP/2.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
    // Chunks.
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\no",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0;x\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 ;a=b\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \t\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n;a\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000002\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0000000000000002\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000002\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6000000000000000\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ne000000000000000\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nmore",
    "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    // Trailers.
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTrailer: A\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTrailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTrailer: a, trailer\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTrailer: Transfer-Encoding\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTrailer: \r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nnonsense\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n A: b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\n\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n: b\r\n\r\n",
    // Interim responses, and other protocols.
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 199 Odd\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok",
    "HTTP/1.1 100 Continue\r\nContent-Length: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok",
    "HTTP/1.1 100 Continue\r\nTransfer-Encoding: gzip\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nnonsense",
    "HTTP/1.1 100 Continue\r\n\r\n\r\nHTTP/1.1 200 OK\r\n\r\nok",
    "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbytes",
    "HTTP/1.1 101 Switching\r\n\r\nbytes",
    "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nbytes",
    "HTTP/1.1 101 Switching\r\nConnection: keep-alive, upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\nbytes",
    // Redirects.
    "HTTP/1.1 301 Moved\r\nLocation: http://elsewhere.test/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation:\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation:\r\nLocation: http://elsewhere.test/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\nLocation: /ok\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: ://\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: /a\u{7f}b\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: /%zz\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: mailto:a@b\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: ftp://elsewhere.test/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1:2/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://127.1:1/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: //127.0.0.1:1/x\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http:/ok\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http:ok\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://user:secret@127.0.0.1:1/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://us er@127.0.0.1/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1%/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://[127.0.0.1]/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://caf\u{e9}.test/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: /caf\u{e9}?\u{e9}\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: ../.././ok\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: ?\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: #x\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: *\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: //elsewhere.test\r\n\r\nmoved",
    "HTTP/1.1 303 See\r\nLocation: http://ELSEWHERE.test\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 304 Not\r\nLocation: /ok\r\n\r\n",
    "HTTP/1.1 305 Proxy\r\nLocation: /ok\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 306 Odd\r\nLocation: /ok\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 307 Temporary\r\nLocation: http://elsewhere.test/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 308 Permanent\r\nLocation: http://elsewhere.test/\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\nContent-Length: 100\r\n\r\nmoved",
];

/// Responses that the mutations change.
const MUTATED: [&str; 5] = [
    "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nok\n\r\n1\r\n.\r\n0\r\nA: b\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 503 Service Unavailable\r\nA: b\r\n c\r\n\r\nbusy",
    "HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/a?b\r\nContent-Length: 5\r\n\r\nmoved",
    "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbytes",
];

/// A generator of pseudo-random numbers, the same in each run (`SplitMix64`).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}

/// Returns all responses: the written ones, ones at the limits, and the mutated ones.
pub(crate) fn responses() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = WRITTEN.iter().map(|text| latin1(text)).collect();
    all.extend(at_the_limits());
    let mut numbers = Numbers(61);
    let mut mutated = BTreeSet::new();
    while mutated.len() < MUTATIONS {
        let mut response = latin1(MUTATED[numbers.below(MUTATED.len())]);
        for _ in 0..=numbers.below(3) {
            mutate(&mut response, &mut numbers);
        }
        mutated.insert(response);
    }
    all.extend(mutated);
    all
}

/// Returns a text as bytes: each character is one byte.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

fn at_the_limits() -> Vec<Vec<u8>> {
    let chunked = |body: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    let headers = |bytes: usize| {
        let count = bytes / 1024;
        format!(
            "HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nok",
            format!("A: {}\r\n", "x".repeat(1019)).repeat(count)
        )
    };
    let extension = |length: usize| chunked(&format!("2;{}\r\nok\r\n0\r\n\r\n", "x".repeat(length)));
    let trailer = |length: usize| chunked(&format!("2\r\nok\r\n0\r\nA: {}\r\n\r\n", "x".repeat(length)));
    [
        headers(1 << 20),
        headers((10 << 20) - 4096),
        headers(10 << 20),
        headers(11 << 20),
        format!("HTTP/1.1 200 {}\r\n\r\nok", "x".repeat(9 << 20)),
        // Too many bytes without data are counted before a chunk with data, and sizes overflow.
        chunked(
            &(format!("1;{}\r\no\r\n", "x".repeat(4_088)).repeat(4) + "0;" + &"x".repeat(200) + "\r\n\r\n"),
        ),
        chunked(&format!("1;{}\r\no\r\n", "x".repeat(4_088)).repeat(5)),
        chunked(&format!("6000000000000000\r\n{}", "x".repeat(11 << 10))),
        chunked(&format!("e000000000000000\r\n{}", "x".repeat(11 << 10))),
        format!("HTTP/1.1 200 OK\r\n{}\r\nok", "A: b\r\n".repeat(1_000)),
        format!("HTTP/1.1 200 OK\r\n {}: b\r\n\r\nok", "x".repeat(75)),
        format!("HTTP/1.1 200 OK\r\n {}: b\r\n\r\nok", "x".repeat(80)),
        format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(10 << 10)),
        format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat((10 << 10) + 1)),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n{}", "x".repeat(11 << 10)),
        extension(4_000),
        extension(4_092),
        extension(4_093),
        extension(4_094),
        extension(4_095),
        extension(5_000),
        trailer(4_000),
        trailer(4_085),
        trailer(4_090),
        trailer(4_096),
        trailer(5_000),
        chunked(&"1;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\no\r\n".repeat(300)),
        chunked(&("1;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\no\r\n".repeat(600) + "0\r\n\r\n")),
        chunked(&("1\r\no\r\n".repeat(5_000) + "0\r\n\r\n")),
    ]
    .iter()
    .map(|text| latin1(text))
    .collect()
}

/// Changes a place of a response, most often in its head.
fn mutate(response: &mut Vec<u8>, numbers: &mut Numbers) {
    let place = numbers.below(response.len().max(1));
    match numbers.below(6) {
        0 => {
            response.drain(place..(place + 1).min(response.len()));
        }
        1 => {
            let bytes = INSERTED[numbers.below(INSERTED.len())];
            response.splice(place..place, bytes.iter().copied());
        }
        2 => {
            let bytes = INSERTED[numbers.below(INSERTED.len())];
            let end = (place + 1).min(response.len());
            response.splice(place..end, bytes.iter().copied());
        }
        3 => response.truncate(place),
        4 => {
            // Doubles a line.
            let start = response[..place].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let end = response[place..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(response.len(), |at| place + at + 1);
            let line = response[start..end].to_vec();
            response.splice(start..start, line);
        }
        _ => {
            if let Some(byte) = response.get_mut(place) {
                *byte ^= 1 << numbers.below(8);
            }
        }
    }
}
