#!/bin/sh
# nvcc_log.sh COMMAND... -o OBJECT...: compiles. What the compiler says goes to OBJECT.log, where tests/cuda_evidence reads of
# each kernel's registers, and to stderr without that.
object= previous=
for argument in "$@"; do
  [ "$previous" != -o ] || object=$argument
  previous=$argument
done
if [ -z "$object" ]; then
  exec "$@"
fi
"$@" 2>"$object.log"
status=$?
grep -Ev '^ptxas info|bytes stack frame|^$' "$object.log" >&2
exit $status
