import rdchat.inference.blas
import sys; sys.path.insert(0,"/tmp/lead/demo")
from common import *
from mlx.utils import tree_unflatten
from transformers import AutoTokenizer
import mlx_lm
from mlx_lm.utils import load_model
folder=Path("~/.cache/rdchat/models/smollm2-135m-instruct").expanduser()
tok=AutoTokenizer.from_pretrained(folder)
net,_=load_model(folder)
E=np.array(net.model.embed_tokens(mx.arange(49152)).astype(mx.float32))
words=sorted({i for c in COLORS for s in SHAPES for r in ("left of","above") for i in tok.encode(f"A {c} {s} {r} a {c} {s}.")}|{tok.encode("\n")[0]})
t=Tower(); t.update(tree_unflatten(list(mx.load("/tmp/lead/demo/tower1.npz").items())))
nl=tok.encode("\n")[0]
r=np.random.default_rng(10**6); b=[draw(r) for _ in range(200)]
got=np.array((t(pixels(np.stack([x[0] for x in b])))@mx.array(E[words]).T).argmax(-1))
want=np.array([[words.index(i) for i in (lambda s: s+[nl]*(16-len(s)))(tok.encode(x[1]))] for x in b])
print((got==want).mean(0).round(2))
for k in range(3): print(b[k][1],'|',tok.decode([words[i] for i in got[k]]).replace('\n',''))
