//! Messages of probes from which query strings are omitted.

use super::*;

#[tokio::test]
async fn redaction_removes_query_strings_from_http_probe_messages() {
    let shown = async |port: u16, path: &str| {
        let outcome = attempt(&get(port, path, &[]), "127.0.0.1", port, LONG, true).await.unwrap();
        let ProbeOutcome::Failure(message) = outcome else { panic!("{outcome:?}") };
        message.replace(&port.to_string(), "PORT")
    };
    let (_socket, closed) = refusing();
    let queries = ["token='s3cret'", "q=a s3cret", "q=\"s3cret\"", "x=<s3cret>", "'s3cret'", "s3cret"];
    for query in queries {
        let message = shown(closed, &format!("/ready?{query}")).await;
        assert!(message.starts_with(r#"Get "http://127.0.0.1:PORT/ready?redacted": "#), "{message}");
        assert!(!message.contains("s3cret"), "{message}");
    }
    let round = serve(|_| page(302, "Location: /a?'s3cret'\r\n", "")).await;
    let message = shown(round.port, "/").await;
    assert_eq!(message, r#"Get "/a?redacted": stopped after 10 redirects"#);
    let lost = serve(|_| page(302, "Location: http://[x?'s3cret'\r\n", "")).await;
    let message = shown(lost.port, "/?s3cret").await;
    let location = r#"failed to parse Location header "http://[x?redacted": parse "http://[x?redacted": missing ']' in host"#;
    assert_eq!(message, format!(r#"Get "http://127.0.0.1:PORT/?redacted": {location}"#));
    let wrong = attempt(&get(1, "/?'s3cret'", &[]), "a b", 1, LONG, true).await.unwrap_err().to_string();
    assert_eq!(wrong, r#"parse "http://a%20b:1/?redacted": invalid URL escape "%20""#);
}
