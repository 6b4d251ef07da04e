module probeshim.test/tools/e2e

go 1.26.0

require (
	github.com/onsi/ginkgo/v2 v2.28.1
	k8s.io/kubernetes v1.36.2
)

replace (
	k8s.io/api v0.0.0 => k8s.io/api v0.36.2
	k8s.io/apiextensions-apiserver v0.0.0 => k8s.io/apiextensions-apiserver v0.36.2
	k8s.io/apimachinery v0.0.0 => k8s.io/apimachinery v0.36.2
	k8s.io/apiserver v0.0.0 => k8s.io/apiserver v0.36.2
	k8s.io/cli-runtime v0.0.0 => k8s.io/cli-runtime v0.36.2
	k8s.io/client-go v0.0.0 => k8s.io/client-go v0.36.2
	k8s.io/cloud-provider v0.0.0 => k8s.io/cloud-provider v0.36.2
	k8s.io/cluster-bootstrap v0.0.0 => k8s.io/cluster-bootstrap v0.36.2
	k8s.io/code-generator v0.0.0 => k8s.io/code-generator v0.36.2
	k8s.io/component-base v0.0.0 => k8s.io/component-base v0.36.2
	k8s.io/component-helpers v0.0.0 => k8s.io/component-helpers v0.36.2
	k8s.io/controller-manager v0.0.0 => k8s.io/controller-manager v0.36.2
	k8s.io/cri-api v0.0.0 => k8s.io/cri-api v0.36.2
	k8s.io/cri-client v0.0.0 => k8s.io/cri-client v0.36.2
	k8s.io/cri-streaming v0.0.0 => k8s.io/cri-streaming v0.36.2
	k8s.io/csi-translation-lib v0.0.0 => k8s.io/csi-translation-lib v0.36.2
	k8s.io/dynamic-resource-allocation v0.0.0 => k8s.io/dynamic-resource-allocation v0.36.2
	k8s.io/endpointslice v0.0.0 => k8s.io/endpointslice v0.36.2
	k8s.io/externaljwt v0.0.0 => k8s.io/externaljwt v0.36.2
	k8s.io/kms v0.0.0 => k8s.io/kms v0.36.2
	k8s.io/kube-aggregator v0.0.0 => k8s.io/kube-aggregator v0.36.2
	k8s.io/kube-controller-manager v0.0.0 => k8s.io/kube-controller-manager v0.36.2
	k8s.io/kube-proxy v0.0.0 => k8s.io/kube-proxy v0.36.2
	k8s.io/kube-scheduler v0.0.0 => k8s.io/kube-scheduler v0.36.2
	k8s.io/kubectl v0.0.0 => k8s.io/kubectl v0.36.2
	k8s.io/kubelet v0.0.0 => k8s.io/kubelet v0.36.2
	k8s.io/metrics v0.0.0 => k8s.io/metrics v0.36.2
	k8s.io/mount-utils v0.0.0 => k8s.io/mount-utils v0.36.2
	k8s.io/pod-security-admission v0.0.0 => k8s.io/pod-security-admission v0.36.2
	k8s.io/sample-apiserver v0.0.0 => k8s.io/sample-apiserver v0.36.2
	k8s.io/streaming v0.0.0 => k8s.io/streaming v0.36.2
)
