#!/usr/bin/env bash
# tools/install-debian.sh [build|test|libraries] [PACKAGE...]: installs the Debian packages that building (or, the default,
# testing too) needs and that are missing, and those that are named. Asks nothing. Needs root or sudo only when something
# is missing. "libraries" installs nothing: it prints what of it is linked, for a build for another architecture.
set -eu

tools=(g++ cmake ninja-build pkg-config)
libraries=(libdnnl-dev ocl-icd-opencl-dev libsentencepiece-dev libsimdjson-dev libcli11-dev nlohmann-json3-dev
           libspdlog-dev libfmt-dev libxxhash-dev libzstd-dev zlib1g-dev libssl-dev libpcre2-dev libutf8proc-dev)
test_tools=(ccache python3 python3-jsonschema zsh fish)
test_libraries=(libgtest-dev libgmock-dev libbenchmark-dev)

what=${1:-test}
[ $# = 0 ] || shift
case $what in
  build) packages=("${tools[@]}" "${libraries[@]}" "$@") ;;
  test) packages=("${tools[@]}" "${libraries[@]}" "${test_tools[@]}" "${test_libraries[@]}" "$@") ;;
  libraries) printf '%s\n' "${libraries[@]}" "${test_libraries[@]}"; exit 0 ;;
  *) echo "usage: tools/install-debian.sh [build|test|libraries] [PACKAGE...]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "== not a Debian system: please see that what these packages hold is there: ${packages[*]}"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=(env)
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "install-debian.sh: error: missing: ${missing[*]} (run as root or install sudo)" >&2; exit 4; }
  as_root=(sudo env)
fi

echo "== installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1; }
# The package lists may be older than what the mirror still has: fetch them first, and go on with the old ones if that fails.
apt update || true
apt install --no-install-recommends "${missing[@]}" || {
  cat "$log" >&2
  echo "install-debian.sh: error: apt-get could not install the packages" >&2
  exit 4
}
