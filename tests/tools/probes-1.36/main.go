// Makes attempts of probes with the kubelet's own code: a probe as JSON a line on stdin, what came of it a line on stdout.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
)

type asked struct {
	Host      string       `json:"host"`
	Probe     v1.Probe     `json:"probe"`
	Container v1.Container `json:"container"`
}

type answered struct {
	Result string `json:"result"`
	Output string `json:"output"`
	Error  string `json:"error"`
}

func attempt(asked asked) (probe.Result, string, error) {
	spec, timeout := asked.Probe, time.Duration(asked.Probe.TimeoutSeconds)*time.Second
	switch {
	case spec.HTTPGet != nil:
		request, err := httpprobe.NewRequestForHTTPGetAction(spec.HTTPGet, &asked.Container, asked.Host, "probe")
		if err != nil {
			return probe.Unknown, "", err
		}
		return httpprobe.New(false).Probe(request, timeout)
	case spec.TCPSocket != nil:
		port, err := probe.ResolveContainerPort(spec.TCPSocket.Port, &asked.Container)
		if err != nil {
			return probe.Unknown, "", err
		}
		host := spec.TCPSocket.Host
		if host == "" {
			host = asked.Host
		}
		return tcpprobe.New().Probe(host, port, timeout)
	case spec.GRPC != nil:
		service := ""
		if spec.GRPC.Service != nil {
			service = *spec.GRPC.Service
		}
		return grpcprobe.New().Probe(asked.Host, service, int(spec.GRPC.Port), timeout)
	}
	return probe.Unknown, "", fmt.Errorf("no handler that is known here")
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked asked
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		result, output, err := attempt(asked)
		told := answered{Result: string(result), Output: output}
		if err != nil {
			told.Error = err.Error()
		}
		text, err := json.Marshal(told)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(string(text))
	}
}
