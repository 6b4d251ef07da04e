//! Errors of image pulls in the kubelet's words.

use tonic::{Code, Status};

use crate::gofmt::rpc_error;

/// Errors of CRI-O that have a reason of their own, and their meaning.
const RUNTIME_ERRORS: [(&str, &str); 2] = [
    ("RegistryUnavailable", "the registry is unavailable"),
    ("SignatureValidationFailed", "the signature validation failed"),
];

/// Returns the text of a failed `PullImage` call. The code `Unknown` is left out, because it has no
/// meaning (cri-client: `pkg/remote_image.go`: `pullImageV1`).
pub(super) fn pull_error_text(status: &Status) -> String {
    if status.code() == Code::Unknown { status.message().to_owned() } else { rpc_error(status) }
}

/// Returns the reason and the message of a container whose image cannot be pulled (kubelet:
/// `images/image_manager.go`: `evalCRIPullErr`).
pub(super) fn pull_reason(image: &str, error: &str) -> (&'static str, String) {
    let known = RUNTIME_ERRORS.iter().find_map(|(reason, meaning)| {
        let detail = error.strip_prefix(reason)?;
        Some((*reason, format!("image pull failed for {image} because {meaning}{detail}")))
    });
    known.unwrap_or(("ErrImagePull", error.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_error_has_its_code_unless_the_code_is_unknown() {
        let not_found = pull_error_text(&Status::not_found("no image"));
        assert_eq!(not_found, "rpc error: code = NotFound desc = no image");
        assert_eq!(pull_error_text(&Status::unknown("x")), "x");
    }

    /// Kubernetes' `TestEvalCRIPullErr`.
    #[test]
    fn upstream_test_eval_cri_pull_err() {
        for (error, reason, message) in [
            ("simple", "ErrImagePull", "simple"),
            (
                "RegistryUnavailable: desc",
                "RegistryUnavailable",
                "image pull failed for test because the registry is unavailable: desc",
            ),
            (
                "RegistryUnavailable",
                "RegistryUnavailable",
                "image pull failed for test because the registry is unavailable",
            ),
            (
                "SignatureValidationFailed: desc",
                "SignatureValidationFailed",
                "image pull failed for test because the signature validation failed: desc",
            ),
            (
                "rpc error: code = NotFound desc = RegistryUnavailable",
                "ErrImagePull",
                "rpc error: code = NotFound desc = RegistryUnavailable",
            ),
        ] {
            assert_eq!(pull_reason("test", error), (reason, message.to_owned()));
        }
    }
}
