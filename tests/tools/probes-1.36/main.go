// Makes probe attempts with the kubelet's own code: reads one probe per line from stdin, as JSON, and writes one result per line to
// stdout. `probes serve` is a server to be probed, with HTTP, gRPC, and HTTPS with a self-signed certificate. `probes tls` passes what
// arrives over TLS on to another server.
package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	// The kubelet has this codec too.
	_ "google.golang.org/grpc/encoding/gzip"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
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
	return probe.Unknown, "", fmt.Errorf("the probe has no handler that this program supports")
}

// certificate returns a self-signed certificate.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// serve answers until the process is killed. `/healthz` succeeds for the duration `healthy`, or always if `healthy` is 0; `/redirect`
// redirects to `loc`; `/protocol` returns the HTTP version, the host, the Accept header, and whether the TLS server name is localhost;
// `/interim` sends `count` interim heads of `size` bytes before the answer.
func serve(healthy time.Duration, plain, health, secure string) error {
	begun := time.Now()
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if healthy > 0 && time.Since(begun) > healthy {
			http.Error(w, "not any more", http.StatusInternalServerError)
		}
	})
	http.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("loc"), http.StatusFound)
	})
	http.HandleFunc("/protocol", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.Proto, r.Host, r.Header.Get("Accept"), r.TLS != nil && r.TLS.ServerName == "localhost")
	})
	http.HandleFunc("/interim", func(w http.ResponseWriter, r *http.Request) {
		count, _ := strconv.Atoi(r.URL.Query().Get("count"))
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		w.Header().Set("Link", strings.Repeat("x", size))
		for range count {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Del("Link")
		fmt.Fprintln(w, "ok")
	})
	listener, err := net.Listen("tcp", health)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, grpchealth.NewServer())
	go server.Serve(listener)
	if secure != "" {
		own, err := certificate()
		if err != nil {
			return err
		}
		server := http.Server{Addr: secure, TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}}}
		go server.ListenAndServeTLS("", "")
	}
	return http.ListenAndServe(plain, nil)
}

// passOn accepts TLS connections, with one application protocol if `protocol` is not empty, and passes their bytes on to a server.
// `fault` is empty, `negative-serial`, `client-certificate` (one is required) or `old` (at most TLS 1.1).
func passOn(listen, protocol, fault, to string) error {
	own, err := certificate()
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}}
	switch fault {
	case "negative-serial":
		// Go creates no such certificate. The number 1 becomes -1.
		der := own.Certificate[0]
		at := bytes.Index(der, []byte{2, 1, 1, 0x30})
		der[at+2] = 0xff
	case "client-certificate":
		config.ClientAuth = tls.RequireAnyClientCert
	case "old":
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	}
	if protocol != "" {
		config.NextProtos = []string{protocol}
	}
	listener, err := tls.Listen("tcp", listen, config)
	if err != nil {
		return err
	}
	for {
		outer, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer outer.Close()
			inner, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer inner.Close()
			read := make(chan struct{})
			go func() {
				io.Copy(inner, outer)
				close(read)
			}()
			io.Copy(outer, inner)
			// The client may still write, and ends the connection.
			outer.(*tls.Conn).CloseWrite()
			<-read
		}()
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "tls" {
		flags := flag.NewFlagSet("tls", flag.ExitOnError)
		listen := flags.String("listen", "", "address for TLS")
		protocol := flags.String("protocol", "", "application protocol, such as h2; none if empty")
		fault := flags.String("fault", "", "negative-serial, client-certificate or old")
		to := flags.String("to", "", "address of the server")
		flags.Parse(os.Args[2:])
		fmt.Fprintln(os.Stderr, passOn(*listen, *protocol, *fault, *to))
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		flags := flag.NewFlagSet("serve", flag.ExitOnError)
		healthy := flags.Duration("healthy", 0, "duration for which /healthz succeeds; 0 means always")
		plain := flags.String("http", ":8080", "address for HTTP")
		health := flags.String("grpc", ":5000", "address for gRPC")
		secure := flags.String("https", "", "address for HTTPS; none if empty")
		flags.Parse(os.Args[2:])
		fmt.Fprintln(os.Stderr, serve(*healthy, *plain, *health, *secure))
		os.Exit(1)
	}
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
