// Is kube-apiserver, kube-controller-manager, kube-scheduler or kubectl, whichever its first argument names: one program, because the four
// share most of their code and linking takes long.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: kubernetes kube-apiserver|kube-controller-manager|kube-scheduler|kubectl ARGUMENTS")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	switch os.Args[0] {
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubectl":
		util.CheckErr(cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()))
	default:
		fmt.Fprintf(os.Stderr, "%s is none of the programs\n", os.Args[0])
		os.Exit(2)
	}
}
