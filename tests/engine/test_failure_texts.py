"""What libraries, drivers and kernels of today write is found by the named patterns."""

import pytest

from federation.engine.failures.patterns import PRESETS, first_found, lines_of

WRITTEN = {
    "@nccl_timeout": [
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)",
        "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1, timeout(ms)=1800000",
        "NCCL operation ncclGroupEnd() timed out",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "node-7:41:98 [2] NCCL WARN NET/Socket : Connection closed by remote peer 10.0.0.7<51234>",
    ],
    "@cuda_error": [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA runtime error (59) : device-side assert triggered",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "cublas failure: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "XlaRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
    ],
    "@gpu_lost": [
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVML: GPU is lost",
        "Unable to determine the device handle for GPU0: 0000:3B:00.0: Unknown Error",
    ],
    "@gpu_ecc": [
        "RuntimeError: uncorrectable ECC error encountered",
        "cuMemcpyDtoH failed: CUDA_ERROR_ECC_UNCORRECTABLE",
        "NVRM: GPU at 0000:3b:00: ECC errors, an uncorrected double bit error",
    ],
    "@gpu_xid": ["NVRM: Xid (PCI:0000:3b:00): 79, pid=1234", "dcgm: XID error 48 detected"],
    "@no_space": ["OSError: [Errno 28] No space left on device", "OSError: [Errno 122] Disk quota exceeded"],
    "@network": [
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "OSError: [Errno 113] No route to host",
        "OSError: [Errno 101] Network is unreachable",
    ],
}


@pytest.mark.parametrize("name", PRESETS)
def test_each_text_of_a_named_pattern_finds_a_line_that_no_other_finds(name):
    lines = WRITTEN[name]
    assert [[text for text in PRESETS[name] if first_found([text], lines_of(line))] for line in lines] == [
        [text] for text in PRESETS[name]
    ]
    assert all(first_found([name], lines_of(line)) == name for line in lines)
