module probeshim.test/tools/containerd

go 1.24.3

require github.com/containerd/containerd v1.7.29
