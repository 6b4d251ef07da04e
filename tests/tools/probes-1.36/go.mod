module probeshim.test/tools/probes

go 1.26.0

require (
	google.golang.org/grpc v1.79.3
	k8s.io/api v0.36.2
	k8s.io/kubernetes v1.36.2
)

require (
	github.com/fxamacker/cbor/v2 v2.9.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.yaml.in/yaml/v2 v2.4.3 // indirect
	golang.org/x/net v0.49.0 // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/text v0.33.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260128011058-8636f8732409 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/apimachinery v0.36.2 // indirect
	k8s.io/component-base v0.0.0 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
	k8s.io/kube-openapi v0.0.0-20260317180543-43fb72c5454a // indirect
	k8s.io/utils v0.0.0-20260210185600-b8788abfbbc2 // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.3.2 // indirect
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
