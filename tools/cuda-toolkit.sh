#!/usr/bin/env bash
# tools/cuda-toolkit.sh [FOLDER]
# Gets what building the CUDA backend needs (nvcc, the runtime, cuBLASLt; 0.9 GB in all) and what tests/cuda_evidence reads
# machine code with (cuobjdump, nvdisasm) from PyPI into FOLDER, build/cuda-toolkit unless named. Nothing is installed on the
# system; neither a GPU nor a driver is needed. Then:
#   cmake --preset cuda -DCUDAToolkit_ROOT=FOLDER && cmake --build --preset cuda
#   KEEL_CUDA_VERSION   version of the toolkit, 13.0 unless set; before 13 PyPI has no nvcc
set -eu

case ${1:-} in
  -h|--help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
folder=${1:-$(dirname "$(realpath "$0")")/../build/cuda-toolkit}
version=${KEEL_CUDA_VERSION:-13.0}
packages="nvidia-cuda-nvcc==$version.* nvidia-cuda-crt==$version.* nvidia-nvvm==$version.* nvidia-cuda-runtime==$version.*
          nvidia-cuda-cccl==$version.* nvidia-cublas==$version.* nvidia-cuda-cuobjdump>=13.2 nvidia-cuda-nvdisasm>=13.2"

mkdir -p "$folder"
folder=$(realpath "$folder")
done_file=$folder/keel-packages.txt
if [ -f "$done_file" ] && [ "$(cat "$done_file")" = "$packages" ]; then
  echo "cuda-toolkit.sh: $folder is complete"
  exit 0
fi

echo "cuda-toolkit.sh: getting CUDA $version into $folder"
staging=$folder.new
rm -rf "$staging"
# shellcheck disable=SC2086
python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --no-compile \
    --target "$staging/packages" $packages || {
  echo "cuda-toolkit.sh: error: the packages could not be had from PyPI" >&2
  rm -rf "$staging"
  exit 3
}
rm -rf "$folder"
mv "$staging"/packages/nvidia/cu* "$folder"
rm -rf "$staging"

# As a toolkit lies elsewhere: lib64, and libraries by the names that linkers look for.
[ -e "$folder/lib64" ] || ln -s lib "$folder/lib64"
for library in "$folder"/lib/lib*.so.[0-9]*; do
  plain=${library%%.so.*}.so
  [ -e "$plain" ] || ln -s "$(basename "$library")" "$plain"
done
chmod +x "$folder"/bin/* "$folder"/nvvm/bin/* 2>/dev/null || true
"$folder/bin/nvcc" --version | tail -n 2
echo "$packages" >"$done_file"
echo "cuda-toolkit.sh: done; use it with cmake --preset cuda -DCUDAToolkit_ROOT=$folder && cmake --build --preset cuda"
