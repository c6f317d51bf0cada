#!/bin/sh
# Bootstrap: makes sure that the command's requirements are installed, then hands over to xtask (cargo xtask …).
#   ./x            lists the commands
#   ./x demo       shows the file system at work
#   ./x test       runs every check; ./x test NAME runs the tests whose name contains NAME
#   ./x bench      measures, beside baselines in the same run
#   ./x fresh      proves that demo and test pass on a bare Debian
set -eu
cd "$(dirname "$0")"

missing=""
need() { # need COMMAND PACKAGE: PACKAGE is missing if COMMAND is
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
# Debian recommends libc6-dev to users of gcc, but does not install it with gcc: so a real program is compiled.
compiles() {
    printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' | cc -x c -o /dev/null - >/dev/null 2>&1
}
knows_certificates() {
    [ -n "${SSL_CERT_FILE:-}" ] && [ -e "$SSL_CERT_FILE" ] && return
    for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
        [ -e "$file" ] && return
    done
    return 1
}
need_mount() { # what a mount, and the programs that the demo and the tests run inside one, need
    needs_fuse=yes
    need fusermount3 fuse3
    need mountpoint util-linux
    need setpriv util-linux
    need useradd passwd
    need tar tar
    need find findutils
    need make make
}
need_python() {
    need python3 python3
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
}

# Every command needs Rust and a C compiler (the libraries contain C). Only some mount anything: the others run on
# machines without /dev/fuse, too.
needs_fuse=no
compiles || missing="$missing gcc libc6-dev"
case "${1:-help}" in
    demo | crash | suites) need git git; need_mount ;;
    bench | figures) need_mount; need_python ;;
    fresh) needs_fuse=yes; need git git; need debootstrap debootstrap ;;
    test | verify)
        need git git
        case "${2:-}" in
            "") need_mount; need_python ;;
            --quick) ;;
            *) need_python ;;
        esac
        ;;
esac
case "${1:-help}" in
    # cargo and pip fetch from registries.
    help | --help | -h) ;;
    *) knows_certificates || missing="$missing ca-certificates" ;;
esac
command -v cargo >/dev/null 2>&1 || {
    [ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH" && export PATH || {
        echo "x: Rust is missing: install it with rustup (https://rustup.rs), then run this again" >&2
        exit 1
    }
}
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "x: installing$missing" >&2
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "x: these packages are missing:$missing" >&2
        echo "x: install them (Debian: sudo apt-get install$missing) and run this again" >&2
        exit 1
    fi
fi
if [ "$needs_fuse" = yes ] && [ ! -e /dev/fuse ]; then
    echo "x: /dev/fuse is missing, and ./x $1 mounts file systems: load the module (sudo modprobe fuse) or allow the" >&2
    echo "x: device in your container; ./x fix, sim, ace, mix, fuzz and test --quick work without it" >&2
    exit 1
fi
exec cargo run --quiet --package xtask -- "$@"
