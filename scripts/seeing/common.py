import numpy as np, mlx.core as mx, mlx.nn as nn
from pathlib import Path
COLORS={"red":(220,40,40),"green":(40,160,60),"blue":(40,80,220),"yellow":(230,200,40)}
SHAPES=("circle","square","triangle")
SIDE=64
def draw(rng):
    """Return pixels and the sentence."""
    c1,c2=rng.choice(list(COLORS),2,replace=False); s1,s2=rng.choice(SHAPES),rng.choice(SHAPES)
    horizontal=bool(rng.integers(2))
    base=255-rng.integers(0,25,3)
    img=np.ones((SIDE,SIDE,3))*base
    a=rng.uniform(14,22,2); b=rng.uniform(42,50,2); # along
    r=rng.uniform(7,11,2)
    across=rng.uniform(20,44)+rng.uniform(-6,6,2)
    y,x=np.mgrid[:SIDE,:SIDE]+0.5
    for (c,s,pos,rad,k) in ((c1,s1,a[0],r[0],0),(c2,s2,b[0],r[1],1)):
        cx,cy=(pos,across[k]) if horizontal else (across[k],pos)
        dx,dy=x-cx,y-cy
        if s=="circle": m=dx*dx+dy*dy<=rad*rad
        elif s=="square": m=(abs(dx)<=rad*0.9)&(abs(dy)<=rad*0.9)
        else: m=(dy<=rad*0.8)&(dy>=-rad+2*abs(dx)*0.95)
        img[m]=np.array(COLORS[c])+rng.integers(-15,16,3)
    rel="left of" if horizontal else "above"
    return img.clip(0,255).astype(np.uint8), f"A {c1} {s1} {rel} a {c2} {s2}."
WIDTH,HEADS,LAYERS,PATCH,SCALE=128,4,4,8,2
class Attn(nn.Module):
    def __init__(s):
        super().__init__()
        for n in ("q_proj","k_proj","v_proj","out_proj"): setattr(s,n,nn.Linear(WIDTH,WIDTH))
    def __call__(s,x):
        B,L,_=x.shape
        q,k,v=(getattr(s,n)(x).reshape(B,L,HEADS,-1).swapaxes(1,2) for n in ("q_proj","k_proj","v_proj"))
        o=mx.fast.scaled_dot_product_attention(q,k,v,scale=(WIDTH//HEADS)**-0.5)
        return s.out_proj(o.swapaxes(1,2).reshape(B,L,-1))
class Layer(nn.Module):
    def __init__(s):
        super().__init__(); s.layer_norm1=nn.LayerNorm(WIDTH,eps=1e-6); s.layer_norm2=nn.LayerNorm(WIDTH,eps=1e-6); s.self_attn=Attn(); s.mlp={"fc1":nn.Linear(WIDTH,2*WIDTH),"fc2":nn.Linear(2*WIDTH,WIDTH)}
    def __call__(s,x):
        x=x+s.self_attn(s.layer_norm1(x)); return x+s.mlp["fc2"](nn.gelu_approx(s.mlp["fc1"](s.layer_norm2(x))))
class Tower(nn.Module):
    def __init__(s,out=576):
        super().__init__()
        n=(SIDE//PATCH)**2
        s.patch=nn.Linear(3*PATCH*PATCH,WIDTH); s.position=mx.random.normal((n,WIDTH))*0.02
        s.layers=[Layer() for _ in range(LAYERS)]; s.post=nn.LayerNorm(WIDTH,eps=1e-6); s.proj=nn.Linear(WIDTH*SCALE**2,out,bias=False)
    def __call__(s,pixels):
        B=pixels.shape[0]; c=SIDE//PATCH
        cut=pixels.reshape(B,3,c,PATCH,c,PATCH).transpose(0,2,4,1,3,5).reshape(B,c*c,-1)
        x=s.patch(cut)+s.position
        for l in s.layers: x=l(x)
        x=s.post(x); g=c//SCALE
        x=x.reshape(B,g,SCALE,g,SCALE,WIDTH).swapaxes(2,3).reshape(B,g*g,-1)
        return s.proj(x)
def pixels(rgb): # (B,H,W,3) uint8 -> (B,3,H,W) as SmolVLM: /255, mean 0.5, std 0.5
    return mx.array(((rgb.astype(np.float32)/255-0.5)/0.5).transpose(0,3,1,2))
