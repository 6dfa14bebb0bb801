"""What PyTorch's own analyser of flight recorders says of the dumps in a folder: a line for each collective."""
import pickle
import sys
import tempfile

from torch.distributed.flight_recorder import fr_trace

with tempfile.NamedTemporaryFile() as output:
    fr_trace.main([sys.argv[1], "-o", output.name])
    _, database = pickle.load(output)
for each in database.collectives:
    errors = {rank: str(other.type_of_mismatch) for rank, other in (each.mismatch_collectives or {}).items()}
    missing = sorted(each.missing_ranks or [])
    word = "matches" if each.pass_check and not missing else "differs"
    print(each.pg_desc, each.collective_name, each.collective_seq_id, word, missing, errors)
