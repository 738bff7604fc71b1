#!/usr/bin/env bash
# tests/aarch64/sysroot.sh FOLDER: unpacks Debian's arm64 packages of the libraries that building and testing need, with all
# that they depend on, into FOLDER. Nothing on this system changes: apt-get works on lists of its own. Does nothing where
# FOLDER has them already.
set -eu

sysroot=$(realpath -m "${1:?a folder must be given}")
cd "$(dirname "$(realpath "$0")")/../.."
mapfile -t packages < <(tools/install-debian.sh libraries)
packages+=(libstdc++-12-dev)
wanted="${packages[*]}"
[ "$(cat "$sysroot/packages" 2>/dev/null || true)" != "$wanted" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"  # apt-get downloads as a user of its own
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/root/usr/bin" "$work/root/usr/lib" "$work/root/usr/sbin"
: > "$work/status"
apt() {
  apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$work/lists" \
    -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" "$@" >> "$work/log" 2>&1
}
echo "== fetching arm64 packages into $sysroot"
apt update || true  # what a mirror without arm64 lacks, the next line needs or not
apt install --no-install-recommends --download-only "${packages[@]}" || {
  cat "$work/log" >&2
  echo "sysroot.sh: error: apt-get could not fetch the arm64 packages" >&2
  exit 4
}

# /lib and /bin are links into /usr, as on every Debian 12.
for folder in bin lib sbin; do ln -s "usr/$folder" "$work/root/$folder"; done
for package in "$work"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work/root" --keep-directory-symlink --no-same-owner
done
# Absolute links would lead out of the folder.
find "$work/root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfr "$work/root$(readlink "$link")" "$link"
done
echo "$wanted" > "$work/root/packages"
rm -rf "$sysroot"
mkdir -p "$(dirname "$sysroot")"
mv "$work/root" "$sysroot"
